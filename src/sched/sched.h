/* SPDX-License-Identifier: Apache-2.0 */
/* What the schedule generators share: the list of methods, the orders that
 * they fill, and small questions about pipelines. */
#ifndef LHI_SCHED_H
#define LHI_SCHED_H

#include "base/arena.h"
#include "base/fail.h"
#include "pipe/pipeline_own.h"

#include <assert.h>
#include <longhaul/methods.h>

/* X(name, function, one line about it), in the order that help shows and that
 * `auto` prefers among equals. Each function lives in a file of its own. */
#define LHI_METHOD_LIST(X)                                                     \
    X("gpipe", lhi_gpipe, "all forwards, then all backwards")                  \
    X("1f1b", lhi_1f1b, "one forward, one backward (ud)")                      \
    X("interleaved-1f1b", lhi_interleaved_1f1b,                                \
      "1f1b over several chunks per device, as in Megatron-LM (loop)")         \
    X("zb-h1", lhi_zb_h1, "zero bubble with the memory of 1f1b (ud, split)")   \
    X("zb-h2", lhi_zb_h2, "zero bubble with twice that memory (ud, split)")    \
    X("zb-v", lhi_zb_v, "zero bubble on a V, memory of 1f1b (wave, split)")    \
    X("flexible", lhi_flexible,                                                \
      "interleaved-1f1b in rounds of any size (ud, loop)")                     \
    X("dorapp", lhi_dorapp,                                                    \
      "flexible with weight gradients of their own (ud, loop, split)")         \
    X("zbv-phases", lhi_zbv_phases,                                            \
      "zero bubble on a V as PyTorch's ZBV counts it out (wave, split)")       \
    X("interleaved-zbv", lhi_interleaved_zbv,                                  \
      "zero bubble on one or more Vs, made for the network (wave, split)")     \
    X("elastic", lhi_elastic,                                                  \
      "groups enqueued and dequeued, as in PipeMesh (ud, loop)")               \
    X("slack", lhi_slack, "warm-up that absorbs link delays (ud, split)")      \
    X("greedy", lhi_greedy, "earliest pass first, W cut to fill gaps")         \
    X("look-ahead", lhi_look_ahead,                                            \
      "greedy, then improved by what is due, seen from the end")               \
    X("auto", lhi_auto, "the fastest of all that fit")

/* The order of one device while it is being made. */
typedef struct lhi_order {
    lh_pass *passes;
    uint32_t count, room;
} lhi_order;

typedef struct lhi_orders {
    lhi_arena *mem; /* owns everything below */
    uint32_t n_devices;
    lhi_order *devices;
    const char *method; /* that made them; static storage */
    /* slack and greedy: when the last pass ends by their own clock, messages
     * in the gaps that they booked; others: 0. */
    int64_t planned_ns;
} lhi_orders;

/* Fills `out`, which it makes by lhi_orders_init(). `options` are complete. On
 * failure `out` holds nothing. */
typedef lh_status lhi_method_fn(const lh_pipeline *pipeline,
                                const lh_method_options *options,
                                lhi_orders *out, lh_error *err);

#define LHI_METHOD_DECLARE(name, function, about) lhi_method_fn function;
LHI_METHOD_LIST(LHI_METHOD_DECLARE)
#undef LHI_METHOD_DECLARE

typedef struct lhi_method {
    const char *name;
    lhi_method_fn *make;
    const char *about;
} lhi_method;

extern const lhi_method lhi_methods[];
extern const uint32_t lhi_n_methods;

/* Room for `passes_per_microbatch` passes of each chunk and microbatch. */
lh_status lhi_orders_init(lhi_orders *orders, const lh_pipeline *pipeline,
                          uint32_t passes_per_microbatch, lh_error *err);
void lhi_orders_fini(lhi_orders *orders);
lh_status lhi_orders_schedule(const lhi_orders *orders, lh_schedule **out,
                              lh_error *err);
/* LH_EINFEASIBLE, naming device, need and limit, where an order takes more
 * memory than the device has. */
lh_status lhi_orders_fit(const lhi_orders *orders, const lh_pipeline *pipeline,
                         lh_error *err);

static inline void lhi_put(lhi_order *order, lh_pass_kind kind, uint32_t chunk,
                           uint32_t microbatch)
{
    assert(order->count < order->room);
    order->passes[order->count++] = (lh_pass){.chunk = chunk,
                                              .microbatch = microbatch,
                                              .n_parts = 1,
                                              .kind = (uint8_t)kind};
}

/* LH_EUNSUPPORTED unless the chunks lie so. */
lh_status lhi_need_placement(const lh_pipeline *pipeline,
                             lh_placement placement, lh_error *err);
/* LH_EUNSUPPORTED where D and W are one pass. */
lh_status lhi_need_split(const lh_pipeline *pipeline, lh_error *err);
/* LH_EINFEASIBLE with the one message for it. */
lh_status lhi_fail_memory(const lh_pipeline *pipeline, uint32_t device,
                          int64_t need, lh_error *err);

#endif
