/* SPDX-License-Identifier: Apache-2.0 */
/* Schedule methods. Input: a pipeline and a method's name; output: each
 * device's pass order. No search happens here except in look-ahead and auto.
 *
 *     sched.h                 list of all methods; the orders that they fill
 *     methods.c               lookup by name and number; runs a method
 *     orders.c                allocates orders, checks memory, builds schedules
 *     dispatcher.c            places passes one by one: greedy, slack
 *     list_scheduler*.c       the same in both directions, for look-ahead
 *     merge_w_parts.c         joins the parts of each W
 *
 * Every other file is one method: gpipe.c, zb_v.c, ... */
#ifndef LHI_SCHEDULE_METHODS_SCHED_H
#define LHI_SCHEDULE_METHODS_SCHED_H

#include "base/arena.h"
#include "base/fail.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <assert.h>
#include <longhaul/experimental/methods.h>

/* X(name, function, chunks, backward, kind, one-line description): all methods,
 * in the order for help texts and for ties in `auto`. Each function has a file.
 *
 * - chunks: required chunk layout, lhi_chunk_layout
 * - backward: SPLIT: D and W must be separate passes
 * - kind: role among the methods, lhi_method_kind */
#define LHI_METHOD_LIST(X)                                                     \
    X("gpipe", lhi_gpipe, ANY, ANY, QUICK, "all forwards, then all backwards") \
    X("1f1b", lhi_1f1b, UD, ANY, QUICK,                                        \
      "warm-up, then one forward and one backward in turn")                    \
    X("seq1f1b", lhi_seq1f1b, SLICED, ANY, QUICK,                              \
      "1f1b over slices of sequences, as in Seq1F1B")                          \
    X("interleaved-1f1b", lhi_interleaved_1f1b, LOOP, ANY, QUICK,              \
      "1f1b over several chunks per device, as in Megatron-LM")                \
    X("zb-h1", lhi_zb_h1, UD, SPLIT, QUICK,                                    \
      "zero bubble with the memory of 1f1b")                                   \
    X("zb-h2", lhi_zb_h2, UD, SPLIT, QUICK,                                    \
      "zero bubble with twice that memory")                                    \
    X("zb-v", lhi_zb_v, WAVE, SPLIT, QUICK,                                    \
      "zero bubble on a V-shaped placement, memory of 1f1b")                   \
    X("flexible", lhi_flexible, UD_LOOP, ANY, QUICK,                           \
      "interleaved-1f1b in rounds of any size")                                \
    X("dorapp", lhi_dorapp, UD_LOOP, SPLIT, QUICK,                             \
      "flexible with separate weight-gradient passes")                         \
    X("zbv-phases", lhi_zbv_phases, WAVE, SPLIT, QUICK,                        \
      "zero bubble on a V-shaped placement, phases of PyTorch's ZBV")          \
    X("interleaved-zbv", lhi_interleaved_zbv, WAVES, SPLIT, QUICK,             \
      "zero bubble on one or more V shapes, order simulated with the links")   \
    X("v-half", lhi_v_half, WAVE, SPLIT, QUICK,                                \
      "zero bubble on a V-shaped placement, half the memory of 1f1b")          \
    X("v-min", lhi_v_min, WAVE, SPLIT, QUICK,                                  \
      "zero bubble on a V-shaped placement, a third of that memory")           \
    X("dualpipev", lhi_dualpipev, WAVE, SPLIT, QUICK,                          \
      "DualPipe on a V-shaped placement, as in DeepSeek's dualpipev.py")       \
    X("dualpipe", lhi_dualpipe, BD, SPLIT, QUICK,                              \
      "zero bubble in two directions, as in DeepSeek's dualpipe.py")           \
    X("chimera", lhi_chimera, BD, ANY, QUICK, "1f1b in two directions")        \
    X("elastic", lhi_elastic, UD_LOOP, ANY, QUICK,                             \
      "groups of microbatches forward and backward, as in PipeMesh")           \
    X("slack", lhi_slack, UD, SPLIT, QUICK,                                    \
      "warm-up that absorbs link delays")                                      \
    X("steady-slack", lhi_steady_slack, UD, SPLIT, QUICK,                      \
      "slack with one D and one F in turn in the steady state")                \
    X("steady", lhi_steady, ONE_DIRECTION, ANY, QUICK,                         \
      "periodic, with the busiest device's work as the period")                \
    X("greedy", lhi_greedy, ANY, ANY, REPRESENTATIVE,                          \
      "earliest pass first, W split to fill gaps")                             \
    X("look-ahead", lhi_look_ahead, ONE_DIRECTION, ANY, SLOW,                  \
      "greedy, improved by list scheduling with backward due dates")           \
    X("auto", lhi_auto, ANY, ANY, META, "the fastest of all that fit")

/* Chunk layouts that a method supports. */
typedef enum lhi_chunk_layout {
    LHI_CHUNK_LAYOUT_ANY,
    LHI_CHUNK_LAYOUT_ONE_DIRECTION,
    LHI_CHUNK_LAYOUT_UD,
    LHI_CHUNK_LAYOUT_SLICED, /* UD with sliced sequences; no other layout has
                              * slices */
    LHI_CHUNK_LAYOUT_LOOP,
    LHI_CHUNK_LAYOUT_UD_LOOP, /* either */
    LHI_CHUNK_LAYOUT_WAVE,
    LHI_CHUNK_LAYOUT_WAVES, /* down the devices and back, repeated */
    LHI_CHUNK_LAYOUT_BD,
} lhi_chunk_layout;

/* A method's role and cost. */
typedef enum lhi_method_kind {
    LHI_METHOD_QUICK,
    LHI_METHOD_REPRESENTATIVE, /* the quick method that is closest to the best
                                * on most layouts: used alone in quick
                                * evaluations */
    LHI_METHOD_SLOW, /* up to chunks^2 per device and pass: tried only if the
                      * quick methods leave a gap to the bound */
    LHI_METHOD_META, /* selects the best of the other methods */
} lhi_method_kind;

/* A device's order under construction. */
typedef struct lhi_order {
    lh_pass *passes;
    uint32_t count, room;
} lhi_order;

/* Orders for all devices; release with lhi_orders_fini(). */
typedef struct lhi_orders {
    lhi_arena *mem; /* owns everything below */
    uint32_t n_devices;
    lhi_order *devices;
    const char *method; /* method that produced them; static storage */
    /* slack and greedy: the last pass's end by the dispatcher's clock, with
     * messages in the reserved gaps; other methods: 0. */
    int64_t planned_ns;
    bool tight; /* slack and greedy: memory may have delayed a pass */
    /* Set by the caller: a method may give up orders whose makespan is this or
     * more, ns; 0: none. `given_up`: it did, and the orders are incomplete. */
    int64_t useless_ns;
    bool given_up;
    /* The makespan, if the method has simulated it with options->sim; 0: it has
     * not. */
    int64_t simulated_ns;
} lhi_orders;

/* Fills `out`, calling lhi_orders_init(), for a pipeline that the method
 * supports. `out` is zeroed but for useless_ns; `options` must be complete. On
 * failure `out` owns nothing. */
typedef lh_status lhi_method_fn(const lh_pipeline *pipeline,
                                const lh_method_options *options,
                                lhi_orders *out, lh_error *err);

#define LHI_METHOD_DECLARE(name, function, ...) lhi_method_fn function;
LHI_METHOD_LIST(LHI_METHOD_DECLARE)
#undef LHI_METHOD_DECLARE

/* A row in the method list. */
typedef struct lhi_method {
    const char *name;
    /* supported pipelines only: lhi_method_build_orders() */
    lhi_method_fn *make;
    lhi_chunk_layout chunks;
    bool split;
    lhi_method_kind kind;
    const char *about;
} lhi_method;

extern const lhi_method lhi_methods[];
extern const uint32_t lhi_n_methods;

/* Returns the method called `name`; NULL: unknown, or `name` is NULL. */
const lhi_method *lhi_method_find(const char *name);
/* Returns the scheduling method that quick evaluations of candidates run, as
 * representative of all methods. */
const lhi_method *lhi_method_get_representative(void);

/* Runs a method as lh_method_run() does, if only schedules with a makespan
 * below useless_ns (0: all) are of use. *out is NULL if the method gave up.
 * *simulated_ns: the schedule's makespan, if the method has simulated it; else
 * 0. */
lh_status lhi_method_run_below(const char *name, const lh_pipeline *pipeline,
                               const lh_method_options *options,
                               int64_t useless_ns, lh_schedule **out,
                               int64_t *simulated_ns, lh_error *err);

/* Builds all devices' orders with a scheduling method, in `out` as for
 * lhi_method_fn. LH_EUNSUPPORTED:
 * the method does not support the pipeline; other errors come from the
 * method. */
lh_status lhi_method_build_orders(const lhi_method *method,
                                  const lh_pipeline *pipeline,
                                  const lh_method_options *options,
                                  lhi_orders *out, lh_error *err);

/* Fails with LH_EUNSUPPORTED if the pipeline has an odd number of devices,
 * which two-directional methods do not support. */
lh_status lhi_check_even_devices(const lh_pipeline *pipeline, lh_error *err);

/* Checks whether a status means that the method does not apply to this
 * pipeline; another method may. All other failures are fatal. */
bool lhi_method_is_inapplicable(lh_status status);

/* Allocates each device's order with capacity for `passes_per_microbatch`
 * passes per chunk and microbatch. Keeps orders->useless_ns. */
lh_status lhi_orders_init(lhi_orders *orders, const lh_pipeline *pipeline,
                          uint32_t passes_per_microbatch, lh_error *err);
/* Releases all memory in `orders`. */
void lhi_orders_fini(lhi_orders *orders);
/* Builds a schedule that copies the orders. */
lh_status lhi_orders_build_schedule(const lhi_orders *orders, lh_schedule **out,
                                    lh_error *err);
/* Checks each device's peak memory under the orders; LH_EINFEASIBLE names the
 * device, its need and its limit. */
lh_status lhi_orders_check_memory(const lhi_orders *orders,
                                  const lh_pipeline *pipeline, lh_error *err);

/* Appends an undivided pass to an order. */
static inline void lhi_order_add_pass(lhi_order *order, lh_pass_kind kind,
                                      uint32_t chunk, uint32_t microbatch)
{
    assert(order->count < order->room);
    order->passes[order->count++] = (lh_pass){.chunk = chunk,
                                              .microbatch = microbatch,
                                              .n_parts = 1,
                                              .kind = (uint8_t)kind};
}

const char *lhi_method_about(uint32_t method); /* one line */

/* Builds the schedule of "dorapp", or with joint backwards of "flexible", with
 * `group` microbatches in a round and a short warm-up: one forward more than on
 * the next device, not two. It needs less memory. For a Loop placement.
 * LH_EUNSUPPORTED: rounds this small deadlock. */
lh_status lhi_make_short_rounds(const lh_pipeline *pipeline, uint32_t group,
                                lh_schedule **out, lh_error *err);

/* Finds a method by name and writes its number to *out (may be NULL).
 * LH_EINVAL: no such method; `err` lists the known names. */
lh_status lhi_method_find_number(const char *name, uint32_t *out,
                                 lh_error *err);

#endif
