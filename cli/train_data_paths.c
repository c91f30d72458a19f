/* SPDX-License-Identifier: Apache-2.0 */
/* Implements --path: messages copied to host memory and sent from there. The
 * run uses the pipeline unchanged; the simulation uses the one with message
 * copies. */
#include "train_internal.h"

lh_status train_paths_begin(cli *c, cli_view *v, cli_paths *out)
{
    train_settings *s = c->settings;
    if (s->adapt && s->staging_ns &&
        !cli_paths_have_effect(&s->model, v->pipeline))
        return cli_usage(c, "--staging has no effect: without --coupled or "
                            "--receives late no send blocks, and --adapt "
                            "delegates none");
    /* On the cpu device copies are real. */
    if (s->device != LH_TRAIN_CPU)
        CLI_TRY(
            cli_paths_check(c, s->path, s->staging_ns, v->pipeline, &s->model));
    CLI_TRY(
        cli_paths_read(c, s->path, s->staging_ns, v->pipeline, &s->model, out));
    if (out->pipeline)
        v->pipeline = out->pipeline;
    return LH_OK;
}

lh_status train_paths_read(cli *c, const cli_view *v, const cli_model *model,
                           train_changes *changes)
{
    train_settings *s = c->settings;
    s->model = *model;
    CLI_TRY(cli_paths_read(c, s->path, s->staging_ns / s->speed, v->pipeline,
                           &s->model, &changes->paths));
    changes->path = cli_data_path_name(&s->model);
    changes->end = s->model;
    return LH_OK;
}

const char *train_path_name(cli *c, lh_data_path path)
{
    const train_settings *s = c->settings;
    return path == LH_DATA_PATH_DIRECT ? cli_data_path_name(&s->model)
                                       : lh_data_path_name(path);
}

lh_status train_paths_end(cli *c, const cli_view *v, const lh_train_result *r,
                          train_changes *changes)
{
    const train_settings *s = c->settings;
    cli_paths *paths = &changes->paths;
    const bool *links;
    if (s->path || r->is_on_other_process ||
        lh_train_path(r, &links) == LH_DATA_PATH_DIRECT)
        return LH_OK;
    paths->delegation = (lh_delegation){.size = sizeof paths->delegation,
                                        .links = links,
                                        .staging_ns = s->staging_ns / s->speed};
    return cli_paths_apply(c, v->pipeline, &changes->end, paths);
}

void train_paths_set(cli *c, const train_changes *changes,
                     lh_exec_options *exec)
{
    const train_settings *s = c->settings;
    if (!s->path)
        return;
    exec->path =
        s->model.delegated ? LH_DATA_PATH_MIXED : LH_DATA_PATH_DELEGATED;
    exec->delegation = &changes->paths.delegation;
}

lh_status train_paths_add_copies(cli *c, const train_changes *changes,
                                 const lh_pipeline *pipeline, lh_pipeline **out)
{
    lh_sim_options how;
    *out = NULL;
    if (!changes->paths.pipeline)
        return LH_OK;
    return lh_delegate(pipeline, NULL, &changes->paths.delegation, out, &how,
                       &c->err);
}

lh_status train_makespan(cli *c, const train_changes *changes,
                         const lh_pipeline *pipeline,
                         const lh_schedule *schedule, int64_t *out)
{
    const lh_sim_options sim = cli_sim_options(&changes->end);
    lh_pipeline *staged;
    lh_timeline *t = NULL;
    CLI_TRY(train_paths_add_copies(c, changes, pipeline, &staged));
    lh_status status =
        lh_simulate(staged ? staged : pipeline, schedule, &sim, &t, &c->err);
    if (status == LH_OK)
        *out = lh_timeline_makespan(t);
    lh_timeline_free(t);
    lh_pipeline_free(staged);
    return status;
}

lh_status train_simulate(cli *c, const train_changes *changes, cli_view *view)
{
    const lh_pipeline *own = view->pipeline;
    lh_pipeline *staged;
    CLI_TRY(train_paths_add_copies(c, changes, own, &staged));
    if (staged)
        view->pipeline = staged;
    lh_status status =
        cli_view_simulate(c, view, &changes->end, c->operands[0]);
    view->pipeline = own;
    lh_pipeline_free(staged);
    return status;
}
