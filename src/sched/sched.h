/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules by rule. In comes a pipeline and the name of a method, out goes the
 * order of the passes on each device; nothing is searched for here, but for
 * what look-ahead and auto try.
 *
 *   sched.h         the one list of methods with what is to be known of each,
 *                   and the orders that they fill
 *   methods.c       that list by name and number; runs a method
 *   order_build.c   room for orders, whether they fit, from orders to schedules
 *   planner.c       a clock that places passes one by one: greedy, slack
 *   both_ways*.c    the same from the end, which look-ahead compares with
 *   whole.c         parts of W put together again
 *
 * Every other file is a method: gpipe.c, zb_v.c, ... */
#ifndef LHI_SCHED_H
#define LHI_SCHED_H

#include "base/arena.h"
#include "base/fail.h"
#include "pipe/pipeline_own.h"

#include <assert.h>
#include <longhaul/methods.h>

/* X(name, function, chunks, backward, kind, what it does in one line): the
 * methods in the order that help shows and that `auto` prefers among equals.
 * Each function lives in a file of its own.
 *   chunks    where those of a pipeline lie that it makes orders for: lhi_lie
 *   backward  SPLIT: D and W have to be passes of their own
 *   kind      how it is used among others: lhi_method_kind */
#define LHI_METHOD_LIST(X)                                                     \
    X("gpipe", lhi_gpipe, ANY, ANY, QUICK, "all forwards, then all backwards") \
    X("1f1b", lhi_1f1b, UD, ANY, QUICK, "one forward, one backward")           \
    X("interleaved-1f1b", lhi_interleaved_1f1b, LOOP, ANY, QUICK,              \
      "1f1b over several chunks per device, as in Megatron-LM")                \
    X("zb-h1", lhi_zb_h1, UD, SPLIT, QUICK,                                    \
      "zero bubble with the memory of 1f1b")                                   \
    X("zb-h2", lhi_zb_h2, UD, SPLIT, QUICK,                                    \
      "zero bubble with twice that memory")                                    \
    X("zb-v", lhi_zb_v, WAVE, SPLIT, QUICK,                                    \
      "zero bubble on a V, memory of 1f1b")                                    \
    X("flexible", lhi_flexible, UD_LOOP, ANY, QUICK,                           \
      "interleaved-1f1b in rounds of any size")                                \
    X("dorapp", lhi_dorapp, UD_LOOP, SPLIT, QUICK,                             \
      "flexible with weight gradients of their own")                           \
    X("zbv-phases", lhi_zbv_phases, WAVE, SPLIT, QUICK,                        \
      "zero bubble on a V as PyTorch's ZBV counts it out")                     \
    X("interleaved-zbv", lhi_interleaved_zbv, WAVES, SPLIT, QUICK,             \
      "zero bubble on one or more Vs, made for the network")                   \
    X("elastic", lhi_elastic, UD_LOOP, ANY, QUICK,                             \
      "groups enqueued and dequeued, as in PipeMesh")                          \
    X("slack", lhi_slack, UD, SPLIT, QUICK,                                    \
      "warm-up that absorbs link delays")                                      \
    X("steady-slack", lhi_steady_slack, UD, SPLIT, QUICK,                      \
      "the same, and keeps it: one D, one F in turn")                          \
    X("steady", lhi_steady, ANY, ANY, QUICK,                                   \
      "every microbatch alike, as far apart as the fullest device needs")      \
    X("greedy", lhi_greedy, ANY, ANY, GLANCE,                                  \
      "earliest pass first, W cut to fill gaps")                               \
    X("look-ahead", lhi_look_ahead, ANY, ANY, SLOW,                            \
      "greedy, then improved by what is due, seen from the end")               \
    X("auto", lhi_auto, ANY, ANY, CHOICE, "the fastest of all that fit")

/* Where the chunks of a pipeline lie. */
typedef enum lhi_lie {
    LHI_LIE_ANY,
    LHI_LIE_UD,
    LHI_LIE_LOOP,
    LHI_LIE_UD_LOOP, /* either */
    LHI_LIE_WAVE,
    LHI_LIE_WAVES, /* down the devices and back again, any number of times */
} lhi_lie;

typedef enum lhi_method_kind {
    LHI_METHOD_QUICK,
    LHI_METHOD_GLANCE, /* the quick one that comes closest to the best of all on
                          most layouts: it stands for all at first sight */
    LHI_METHOD_SLOW,   /* up to the square of the chunks on a device for every
                          pass: tried where the others leave a hope */
    LHI_METHOD_CHOICE, /* the best of the others, with no order of its own */
} lhi_method_kind;

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
    bool tight; /* these again: memory may have kept a pass from its turn */
} lhi_orders;

/* Fills `out`, which it makes by lhi_orders_init(), for a pipeline that its row
 * says it suits. `options` are complete. On failure `out` holds nothing. */
typedef lh_status lhi_method_fn(const lh_pipeline *pipeline,
                                const lh_method_options *options,
                                lhi_orders *out, lh_error *err);

#define LHI_METHOD_DECLARE(name, function, ...) lhi_method_fn function;
LHI_METHOD_LIST(LHI_METHOD_DECLARE)
#undef LHI_METHOD_DECLARE

typedef struct lhi_method {
    const char *name;
    lhi_method_fn *make; /* for what it suits: lhi_method_make() */
    lhi_lie chunks;
    bool split;
    lhi_method_kind kind;
    const char *about;
} lhi_method;

extern const lhi_method lhi_methods[];
extern const uint32_t lhi_n_methods;

/* NULL: there is none of that name, or `name` is NULL. */
const lhi_method *lhi_method_named(const char *name);
/* The one that stands for all at first sight. */
const lhi_method *lhi_method_at_a_glance(void);

/* LH_EUNSUPPORTED where the method does not make orders for the pipeline, else
 * as its function. */
lh_status lhi_method_make(const lhi_method *method, const lh_pipeline *pipeline,
                          const lh_method_options *options, lhi_orders *out,
                          lh_error *err);

/* Whether making a schedule answers that the method has none for the pipeline;
 * another may have one. Any other failure is one of the whole. */
bool lhi_method_refused(lh_status status);

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

#endif
