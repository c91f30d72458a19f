/* SPDX-License-Identifier: Apache-2.0 */
/* Time for the work of a layer range: computation on its GPU, and communication
 * between GPUs. */
#ifndef LHI_PRICES_H
#define LHI_PRICES_H

#include "cost/all_to_all.h"
#include "cost/work.h"

/* All inputs that the times depend on. */
typedef struct lhi_prices {
    const lh_job *job;
    const lh_layout *layout;
    const lh_cost_slice *slice;
    lhi_busiest *known;
    lh_cost_options options;
    lhi_shape shape;
    double flops_per_ns, fp8_flops_per_ns, bytes_per_ns; /* effective rates */
    double grouped; /* fraction of these reached by experts' products */
    bool by_efficiency;
    bool among; /* one of the ranges that make up the model */
    bool least; /* expert communication is a lower bound */
    lh_cost_group tensor_group, context_group;
    lh_cost_path tensor, context;
    lhi_exchange_time expert; /* of all-to-alls */
    lh_cost_path sharing;     /* between GPUs that share experts */
} lhi_prices;

/* A time in nanoseconds with its breakdown. */
typedef struct lhi_spent {
    double total, matmul, memory, kernel, communication, flops;
    double wire; /* time using the network between nodes */
    double data; /* part of communication: ZeRO 2 and 3 */
    double end;  /* part of data: before first or after last layer */
} lhi_spent;

/* Times of the F, D and W passes. */
typedef struct lhi_spent_passes {
    lhi_spent f, d, w;
} lhi_spent_passes;

/* Prepares the inputs for the job's layer range `slice`. `least`: use a lower
 * bound over all placements for expert communication. Borrows all arguments.
 * Errors as lh_cost_chunk(). */
lh_status lhi_prices_make(const lh_job *job, const lh_layout *layout,
                          const lh_cost_slice *slice,
                          const lh_cost_options *options, bool least,
                          lhi_busiest *known, lhi_prices *p, lh_error *err);

/* Returns the exposed communication time in ns. */
double lhi_price_communication(const lhi_prices *p, const lhi_work *work);
/* Returns the time that the work uses the network between nodes, in ns. */
double lhi_price_wire(const lhi_prices *p, const lhi_work *work);
/* Computes the time breakdown for some work. */
void lhi_price_work(const lhi_prices *p, const lhi_work *work, lhi_spent *out);
/* Computes the times of all passes of a layer, or of an embedding or head. */
void lhi_price_passes(const lhi_prices *p, const lhi_passes *work,
                      bool is_layer, lhi_spent_passes *out);
/* Adds `what`, `times` times. */
void lhi_spent_add(lhi_spent *to, const lhi_spent *what, double times);

#endif
