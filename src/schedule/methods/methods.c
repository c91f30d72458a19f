/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/methods/sched.h"

#include "base/options.h"
#include "schedule/pipeline/accessors.h"

#include <longhaul/experimental/schedule.h>

#include <string.h>

/* Requirements on the pipeline, appended to a method's description. */
#define NEEDS_ANY_ANY ""
#define NEEDS_ONE_DIRECTION_ANY " (ud, loop, wave)"
#define NEEDS_BD_ANY " (bd)"
#define NEEDS_BD_SPLIT " (bd, split)"
#define NEEDS_UD_ANY " (ud)"
#define NEEDS_SLICED_ANY " (ud, slices)"
#define NEEDS_LOOP_ANY " (loop)"
#define NEEDS_UD_LOOP_ANY " (ud, loop)"
#define NEEDS_UD_SPLIT " (ud, split)"
#define NEEDS_UD_LOOP_SPLIT " (ud, loop, split)"
#define NEEDS_WAVE_SPLIT " (wave, split)"
#define NEEDS_WAVES_SPLIT " (wave, split)"

enum { BACKWARD_ANY, BACKWARD_SPLIT };

const lhi_method lhi_methods[] = {
#define METHOD_ROW(name, function, chunks, backward, kind, about)              \
    {name,                                                                     \
     function,                                                                 \
     LHI_CHUNK_LAYOUT_##chunks,                                                \
     BACKWARD_##backward == BACKWARD_SPLIT,                                    \
     LHI_METHOD_##kind,                                                        \
     about NEEDS_##chunks##_##backward},
    LHI_METHOD_LIST(METHOD_ROW)
#undef METHOD_ROW
};
const uint32_t lhi_n_methods = sizeof lhi_methods / sizeof *lhi_methods;

const lhi_method *lhi_method_find(const char *name)
{
    for (uint32_t i = 0; name && i < lhi_n_methods; i++)
        if (strcmp(lhi_methods[i].name, name) == 0)
            return &lhi_methods[i];
    return NULL;
}

const lhi_method *lhi_method_get_representative(void)
{
    uint32_t i = 0;
    while (lhi_methods[i].kind != LHI_METHOD_REPRESENTATIVE)
        i++;
    return &lhi_methods[i];
}

uint32_t lh_n_methods(void)
{
    return lhi_n_methods;
}

/* Returns the name of scheduling method number `method`; static storage. NULL:
 * no such number. */
const char *lh_method_name(uint32_t method)
{
    return method < lhi_n_methods ? lhi_methods[method].name : NULL;
}

/* Returns a one-line description for scheduling method number `method`; static
 * storage. */
const char *lhi_method_about(uint32_t method)
{
    return method < lhi_n_methods ? lhi_methods[method].about : NULL;
}

/* Fails with LH_EINVAL because no scheduling method is called `name`; the
 * message lists the known methods. */
static lh_status report_unknown_name(const char *name, lh_error *err)
{
    char names[256] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < lhi_n_methods; i++) {
        const char *parts[] = {i ? ", " : "", lhi_methods[i].name};
        for (uint32_t k = 0; k < 2; k++) {
            size_t len = strlen(parts[k]);
            if (used + len >= sizeof names)
                continue;
            memcpy(names + used, parts[k], len + 1);
            used += len;
        }
    }
    return lhi_fail(err, LH_EINVAL, "unknown method '%.64s'; known: %s", name,
                    names);
}

lh_status lhi_method_find_number(const char *name, uint32_t *out, lh_error *err)
{
    const lhi_method *method = lhi_method_find(name);
    if (!method)
        return report_unknown_name(name, err);
    if (out)
        *out = (uint32_t)(method - lhi_methods);
    return LH_OK;
}

bool lh_method_is_auto(const char *name)
{
    const lhi_method *method = lhi_method_find(name);
    return method && method->kind == LHI_METHOD_META;
}

/* ---- pipeline requirements ---- */

/* Checks whether the pipeline has the chunk placement on devices. On one
 * device, chunks 0 and 1 of one direction form a V as well as a loop. */
static bool has_placement(const lh_pipeline *p, lh_placement placement)
{
    if (p->placement == placement)
        return true;
    return placement == LH_PLACEMENT_WAVE && p->n_devices == 1 &&
           p->n_chunks == 2 && !p->bidirectional;
}

/* Fails with LH_EUNSUPPORTED unless the pipeline has the placement that a
 * method requires. */
static lh_status check_placement(const lh_pipeline *p, lh_placement placement,
                                 lh_error *err)
{
    if (has_placement(p, placement))
        return LH_OK;
    return lhi_fail(
        err, LH_EUNSUPPORTED, "needs placement %s; that of this pipeline is %s",
        lh_placement_name(placement), lh_placement_name(p->placement));
}

/* Fails with LH_EUNSUPPORTED unless the chunks run down the devices and back
 * again, once or more often (Wave placement). */
static lh_status check_waves(const lh_pipeline *p, lh_error *err)
{
    uint32_t devices = p->n_devices;
    bool folded = p->n_chunks % devices == 0 && !p->bidirectional;
    for (uint32_t c = 0; c < p->n_chunks && folded; c++) {
        uint32_t at = c % devices;
        if (c / devices % 2)
            at = devices - 1 - at;
        folded = p->chunks[c].device == at;
    }
    if (folded)
        return LH_OK;
    return lhi_fail(
        err, LH_EUNSUPPORTED,
        "needs chunks placed down the devices and back, equally many "
        "on each; with two per device this is placement wave");
}

/* Fails with LH_EUNSUPPORTED unless the pipeline has a placement of chunks on
 * devices that the method supports. */
static lh_status check_chunk_layout(const lh_pipeline *p,
                                    lhi_chunk_layout chunks, lh_error *err)
{
    switch (chunks) {
    case LHI_CHUNK_LAYOUT_ANY:
        return LH_OK;
    case LHI_CHUNK_LAYOUT_ONE_DIRECTION:
        return p->bidirectional
                   ? lhi_pipeline_require_one_direction(p, "the method", err)
                   : LH_OK;
    case LHI_CHUNK_LAYOUT_BD:
        return check_placement(p, LH_PLACEMENT_BD, err);
    case LHI_CHUNK_LAYOUT_UD:
    case LHI_CHUNK_LAYOUT_SLICED:
        return check_placement(p, LH_PLACEMENT_UD, err);
    case LHI_CHUNK_LAYOUT_UD_LOOP:
        if (has_placement(p, LH_PLACEMENT_UD))
            return LH_OK;
        return check_placement(p, LH_PLACEMENT_LOOP, err);
    case LHI_CHUNK_LAYOUT_LOOP:
        return check_placement(p, LH_PLACEMENT_LOOP, err);
    case LHI_CHUNK_LAYOUT_WAVE:
        return check_placement(p, LH_PLACEMENT_WAVE, err);
    case LHI_CHUNK_LAYOUT_WAVES:
        return check_waves(p, err);
    }
    return LH_OK;
}

lh_status lhi_method_build_orders(const lhi_method *method,
                                  const lh_pipeline *pipeline,
                                  const lh_method_options *options,
                                  lhi_orders *out, lh_error *err)
{
    LHI_TRY(check_chunk_layout(pipeline, method->chunks, err));
    bool sliced = method->chunks == LHI_CHUNK_LAYOUT_SLICED;
    if (method->kind != LHI_METHOD_META && sliced != (pipeline->n_slices > 1))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        sliced ? "needs sequences in slices (slices)"
                               : "does not support sliced sequences (slices); "
                                 "use seq1f1b");
    if (method->split && pipeline->joint)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "needs backward: split, with D and W as passes of "
                        "their own; that of this pipeline is joint");
    return method->make(pipeline, options, out, err);
}

bool lhi_method_is_inapplicable(lh_status status)
{
    return status == LH_EUNSUPPORTED || status == LH_EINFEASIBLE ||
           status == LH_EDEADLOCK;
}

/* ---- running a method ---- */

/* Copies the method options with defaults filled in and checks them. */
static lh_status complete_options(const lh_method_options *given,
                                  lh_method_options *out, lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_COPY(lh_method_options, out, given, err));
    if (out->sub_blocks == 0)
        out->sub_blocks = 1;
    if (out->sub_blocks > LH_MAX_PARTS)
        return lhi_fail(err, LH_EINVAL,
                        "%u sub-blocks are out of range; from 1 to %u",
                        (unsigned)out->sub_blocks, LH_MAX_PARTS);
    return LH_OK;
}

/* Builds a method's orders, checks their memory and builds the schedule. *out
 * is NULL if the method gave up at orders->useless_ns. The caller releases the
 * orders, also on failure. */
static lh_status make_schedule(const char *name, const lh_pipeline *pipeline,
                               const lh_method_options *options,
                               lhi_orders *orders, lh_schedule **out,
                               lh_error *err)
{
    lh_method_options all;
    LHI_TRY(complete_options(options, &all, err));
    const lhi_method *method = lhi_method_find(name);
    if (!method)
        return report_unknown_name(name, err);
    lh_status status =
        lhi_method_build_orders(method, pipeline, &all, orders, err);
    const bool is_complete = status == LH_OK && !orders->given_up;
    if (status == LH_OK && !orders->method)
        orders->method = method->name;
    if (is_complete)
        status = lhi_orders_check_memory(orders, pipeline, err);
    if (is_complete && status == LH_OK)
        status = lhi_orders_build_schedule(orders, out, err);
    if (status != LH_OK)
        lhi_fail_add_context(err, "%s", name);
    return status;
}

lh_status lhi_method_run_below(const char *name, const lh_pipeline *pipeline,
                               const lh_method_options *options,
                               int64_t useless_ns, lh_schedule **out,
                               int64_t *simulated_ns, lh_error *err)
{
    lhi_orders orders = {.useless_ns = useless_ns};
    *out = NULL;
    lh_status status =
        make_schedule(name, pipeline, options, &orders, out, err);
    *simulated_ns = orders.simulated_ns;
    lhi_orders_fini(&orders);
    return status;
}

lh_status lh_method_run(const char *name, const lh_pipeline *pipeline,
                        const lh_method_options *options, lh_schedule **out,
                        const char **chosen, lh_error *err)
{
    lhi_orders orders = {0};
    lh_status status =
        make_schedule(name, pipeline, options, &orders, out, err);
    if (status == LH_OK && chosen)
        *chosen = orders.method;
    lhi_orders_fini(&orders);
    return status;
}
