/* SPDX-License-Identifier: Apache-2.0 */
#include "export/export_own.h"

#include "plan/layout/target.h"

#include <longhaul/simulate.h>

static const char *const targets[] = {"pytorch", "torchtitan", "megatron",
                                      "chrome"};
static const char *const forms[] = {"compute_only", "compute_comms"};

uint32_t lh_n_export_targets(void)
{
    return sizeof targets / sizeof *targets;
}

const char *lh_export_target_name(lh_export_target target)
{
    return (uint32_t)target < lh_n_export_targets() ? targets[target] : NULL;
}

uint32_t lh_n_pytorch_forms(void)
{
    return sizeof forms / sizeof *forms;
}

const char *lh_pytorch_form_name(lh_pytorch_form form)
{
    return (uint32_t)form < lh_n_pytorch_forms() ? forms[form] : NULL;
}

lh_status lhi_export_check(const lh_plan *plan, lh_target target, lh_error *err)
{
    lh_error why = {0};
    lh_status status =
        lhi_target_check_choice(target, plan->job, &plan->best, &why);
    if (status == LH_OK)
        return LH_OK;
    return lhi_fail(err, status,
                    "%s; longhaul plan --for %s searches what it can run",
                    why.text, lh_target_name(target));
}

lh_status lh_export_chrome(const lh_pipeline *pipeline,
                           const lh_schedule *schedule, const char *title,
                           char **text, size_t *len, lh_error *err)
{
    lh_timeline *timeline = NULL;
    lh_trace *trace = NULL;
    lh_status status = lh_simulate(pipeline, schedule, NULL, &timeline, err);
    if (status == LH_OK)
        status = lh_trace_make(pipeline, timeline, title, &trace, err);
    if (status == LH_OK)
        status = lh_trace_format(trace, text, len, err);
    lh_trace_free(trace);
    lh_timeline_free(timeline);
    return status;
}
