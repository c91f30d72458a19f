/* SPDX-License-Identifier: Apache-2.0 */
/* Time for a layer range's work: computation on its GPU, and communication
 * between GPUs. */
#ifndef LHI_MODEL_TIMING_H
#define LHI_MODEL_TIMING_H

#include "model/all_to_all.h"
#include "model/work.h"

/* All inputs that the times depend on. */
typedef struct lhi_cost_context {
    const lh_job *job;
    const lh_layout *layout;
    const lh_cost_layer_range *slice;
    lhi_ecmp_cache *ecmp_cache;
    lh_cost_options options;
    lhi_shape shape;
    double flops_per_ns, fp8_flops_per_ns, bytes_per_ns; /* effective rates */
    bool has_flash_rates; /* false: attention has the rate of products */
    /* flash attention's effective rates, forward and backward */
    double flash_f_flops_per_ns, flash_d_flops_per_ns;
    double
        grouped_efficiency; /* fraction of these reached by experts' products */
    bool by_efficiency;
    bool in_sequence;    /* one of the ranges that make up the model */
    bool is_lower_bound; /* expert communication is a lower bound */
    lh_cost_group tensor_group, context_group;
    lh_cost_path tensor, context;
    lhi_exchange_time expert; /* of all-to-alls */
    lh_cost_path sharing;     /* between GPUs that share experts */
} lhi_cost_context;

/* A time in nanoseconds with its breakdown. */
typedef struct lhi_time_breakdown {
    double total, matmul, memory, kernel, communication, flops;
    double inter_node;    /* time using the network between nodes */
    double data_parallel; /* part of communication: ZeRO 2 and 3 */
    double exposed_end;   /* part of data: before first or after last layer */
} lhi_time_breakdown;

/* Times of the F, D and W passes. */
typedef struct lhi_pass_times {
    lhi_time_breakdown f, d, w;
} lhi_pass_times;

/* Prepares the cost inputs (shape, rates, groups and paths) for the job's layer
 * range `slice`. `least`: use a lower bound over all placements for expert
 * communication. `known`: ECMP result cache. Borrows all arguments. Errors as
 * lh_cost_chunk(). */
lh_status lhi_cost_context_build(const lh_job *job, const lh_layout *layout,
                                 const lh_cost_layer_range *slice,
                                 const lh_cost_options *options, bool least,
                                 lhi_ecmp_cache *known, lhi_cost_context *p,
                                 lh_error *err);

/* Time of a layer's all-to-alls that runs beside computation, in ns. */
typedef struct lhi_hidden_exchange {
    double f_ns, d_ns; /* in F and in D */
} lhi_hidden_exchange;

/* Computes the hidden time of one layer's all-to-alls with the given work, into
 * *out; 0 without framework.overlap of experts. */
void lhi_compute_hidden_exchange(const lhi_cost_context *p,
                                 const lhi_pass_work *work,
                                 lhi_hidden_exchange *out);

/* Returns a pass's exposed communication time in ns: the part that does not
 * overlap with computation. It still includes all-to-alls of experts that
 * lhi_compute_hidden_exchange() finds hidden. */
double lhi_compute_communication_time(const lhi_cost_context *p,
                                      const lhi_work *work);
/* Returns the time that a pass uses the network between nodes, in ns. */
double lhi_compute_wire_time(const lhi_cost_context *p, const lhi_work *work);
/* Computes one pass's time into *out, with its breakdown: products, memory
 * traffic, kernel launches and communication. */
void lhi_compute_work_time(const lhi_cost_context *p, const lhi_work *work,
                           lhi_time_breakdown *out);
/* Computes the times of all passes (F, D and W) of a layer (`is_layer`), or of
 * an embedding or head, into *out. */
void lhi_compute_pass_times(const lhi_cost_context *p,
                            const lhi_pass_work *work, bool is_layer,
                            lhi_pass_times *out);
/* Adds the times of *what, multiplied by `times`, to *to. */
void lhi_time_breakdown_add(lhi_time_breakdown *to,
                            const lhi_time_breakdown *what, double times);
/* Subtracts `ns` of communication, which runs beside computation, from a pass's
 * communication time and total. */
void lhi_time_breakdown_hide(lhi_time_breakdown *pass, double ns);

#endif
