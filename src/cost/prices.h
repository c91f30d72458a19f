/* SPDX-License-Identifier: Apache-2.0 */
/* Prices: what the work of a slice takes on its GPU and between GPUs. */
#ifndef LHI_PRICES_H
#define LHI_PRICES_H

#include "cost/all_to_all.h"
#include "cost/work.h"

/* All that prices depend on. */
typedef struct lhi_prices {
    const lh_job *job;
    const lh_layout *layout;
    const lh_cost_slice *slice;
    lhi_busiest *known;
    lh_cost_options options;
    lhi_shape shape;
    double flops_per_ns, fp8_flops_per_ns, bytes_per_ns; /* as reached */
    double grouped; /* share of these rates that experts' products reach */
    bool by_efficiency;
    bool among; /* the slice is one of those that the model is cut into */
    bool least; /* what experts send takes no longer than anywhere */
    lh_cost_group tensor_group, context_group;
    lh_cost_path tensor, context;
    lhi_exchange_time expert; /* of all-to-alls */
    lh_cost_path sharing;     /* of GPUs that share experts */
} lhi_prices;

/* Nanoseconds, in parts. */
typedef struct lhi_spent {
    double total, matmul, memory, kernel, communication, flops;
    double wire; /* for how long the network between nodes is in use */
    double data; /* of communication: what ZeRO 2 and 3 send */
    double end;  /* of data: before the first layer, or after the last */
} lhi_spent;

typedef struct lhi_spent_passes {
    lhi_spent f, d, w;
} lhi_spent_passes;

/* For `slice` of a job; `least`: what experts send takes no longer than in any
 * placement. Borrows all it is given. Errors as lh_cost_chunk(). */
lh_status lhi_prices_make(const lh_job *job, const lh_layout *layout,
                          const lh_cost_slice *slice,
                          const lh_cost_options *options, bool least,
                          lhi_busiest *known, lhi_prices *p, lh_error *err);

double lhi_price_communication(const lhi_prices *p, const lhi_work *work);
/* How long it uses the network between nodes. */
double lhi_price_wire(const lhi_prices *p, const lhi_work *work);
void lhi_price_work(const lhi_prices *p, const lhi_work *work, lhi_spent *out);
/* All passes of a layer or of what lies at an end. */
void lhi_price_passes(const lhi_prices *p, const lhi_passes *work,
                      bool is_layer, lhi_spent_passes *out);
void lhi_spent_add(lhi_spent *to, const lhi_spent *what, double times);

#endif
