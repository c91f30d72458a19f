/* SPDX-License-Identifier: Apache-2.0 */
#include "interop/export/export_internal.h"

#include "base/options.h"

#include <longhaul/experimental/export.h>
#include <longhaul/simulate.h>

static const lhi_export_form export_forms[] = {
    [LH_EXPORT_PYTORCH] =
        {.name = "pytorch",
         .has_schedule = true,
         .planner_target = LH_TARGET_PYTORCH,
         .program = "PROGRAM=${PROGRAM:?is not set: the program that reads\n"
                    "LONGHAUL_SCHEDULE and LONGHAUL_STAGES}\n"
                    "export LONGHAUL_SCHEDULE=\"$here/schedule.csv\"\n"
                    "export LONGHAUL_STAGES=\"$here/stages.json\"\n",
         .inputs = "all settings of your own\n"
                   "program, which PROGRAM names and which finds the files by "
                   "LONGHAUL_SCHEDULE\n"
                   "and LONGHAUL_STAGES.\n"},
    [LH_EXPORT_TORCHTITAN] = {.name = "torchtitan",
                              .write = lhi_export_write_torchtitan,
                              .file_name = "args.txt",
                              .has_arguments = true,
                              .has_schedule = true,
                              .planner_target = LH_TARGET_TORCHTITAN,
                              .program =
                                  "PROGRAM=${PROGRAM:--m torchtitan.train}\n"
                                  "export PYTHONPATH=\"$here"
                                  "${PYTHONPATH:+:$PYTHONPATH}\"\n",
                              .inputs = "data, tokenizer, learning rate\n"
                                        "and checkpoints.\n"},
    [LH_EXPORT_TORCHTITAN_MODEL] = {.name = "torchtitan-model",
                                    .write = lhi_export_write_torchtitan_model,
                                    .file_name = "longhaul_model.py",
                                    .planner_target = LH_TARGET_TORCHTITAN},
    [LH_EXPORT_MEGATRON] = {.name = "megatron",
                            .write = lhi_export_write_megatron,
                            .file_name = "args.txt",
                            .has_arguments = true,
                            .planner_target = LH_TARGET_MEGATRON,
                            .program = "# Megatron-LM's own folder has it.\n"
                                       "PROGRAM=${PROGRAM:-pretrain_gpt.py}\n",
                            .inputs = "data, tokenizer, learning rate\n"
                                      "and checkpoints.\n"},
    [LH_EXPORT_MEGATRON_BRIDGE] =
        {.name = "megatron-bridge",
         .write = lhi_export_write_megatron_bridge,
         .file_name = "longhaul_recipe.py",
         .planner_target = LH_TARGET_MEGATRON,
         .display_name = "Megatron-Bridge",
         .program = "# Or another that has pretrain_config() from it.\n"
                    "PROGRAM=${PROGRAM:--m longhaul_recipe}\n"
                    "export PYTHONPATH=\"$here${PYTHONPATH:+:$PYTHONPATH}\"\n",
         .inputs = "data, tokenizer, learning rate\n"
                   "and checkpoints, for example train.train_iters=1000.\n"},
    [LH_EXPORT_CHROME] = {.name = "chrome"},
    [LH_EXPORT_CHAKRA] = {.name = "chakra"},
};

const lhi_export_form *lhi_export_form_of(lh_export_target target)
{
    return &export_forms[target];
}

const char *lhi_export_display_name(lh_export_target target)
{
    const lhi_export_form *form = lhi_export_form_of(target);
    return form->display_name ? form->display_name
                              : lh_target_display_name(form->planner_target);
}

/* Writes a target's arguments or recipe, after checking that it can express
 * every setting of the model.
 * LH_EUNSUPPORTED: it cannot, unless options->allow_inexact. */
static lh_status write_exactly(const lh_plan *plan, lh_export_target target,
                               const lh_export_options *options, char **text,
                               size_t *len, lh_error *err)
{
    lh_export_options o;
    LHI_TRY(LHI_OPTIONS_COPY(lh_export_options, &o, options, err));
    LHI_TRY(lhi_export_check_inexact(
        plan, target, lhi_export_display_name(target), o.allow_inexact, err));
    return lhi_export_form_of(target)->write(plan, text, len, err);
}

lh_status lh_export_torchtitan(const lh_plan *plan,
                               const lh_export_options *options, char **text,
                               size_t *len, lh_error *err)
{
    return write_exactly(plan, LH_EXPORT_TORCHTITAN, options, text, len, err);
}

lh_status lh_export_torchtitan_model(const lh_plan *plan,
                                     const lh_export_options *options,
                                     char **text, size_t *len, lh_error *err)
{
    return write_exactly(plan, LH_EXPORT_TORCHTITAN_MODEL, options, text, len,
                         err);
}

lh_status lh_export_megatron(const lh_plan *plan,
                             const lh_export_options *options, char **text,
                             size_t *len, lh_error *err)
{
    return write_exactly(plan, LH_EXPORT_MEGATRON, options, text, len, err);
}

lh_status lh_export_megatron_bridge(const lh_plan *plan,
                                    const lh_export_options *options,
                                    char **text, size_t *len, lh_error *err)
{
    return write_exactly(plan, LH_EXPORT_MEGATRON_BRIDGE, options, text, len,
                         err);
}

static const char *const forms[] = {"compute_only", "compute_comms"};

uint32_t lh_n_export_targets(void)
{
    return sizeof export_forms / sizeof *export_forms;
}

const char *lh_export_target_name(lh_export_target target)
{
    return (uint32_t)target < lh_n_export_targets() ? export_forms[target].name
                                                    : NULL;
}

uint32_t lh_n_pytorch_forms(void)
{
    return sizeof forms / sizeof *forms;
}

const char *lh_pytorch_form_name(lh_pytorch_form form)
{
    return (uint32_t)form < lh_n_pytorch_forms() ? forms[form] : NULL;
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
