/* SPDX-License-Identifier: Apache-2.0 */
#include "view.h"

#include "optimal.h"

#include <longhaul/experimental/methods.h>

#include <inttypes.h>
#include <string.h>

/* Builds the view's schedule by the method `name`, or by the best of all
 * methods for "auto"; sets the view's method. sub_blocks: parts per W pass. */
static lh_status make_schedule(cli *c, cli_view *view, const char *name,
                               const cli_model *model, uint32_t sub_blocks)
{
    lh_sim_options sim = cli_sim_options(model);
    lh_method_options how = {
        .size = sizeof how, .sub_blocks = sub_blocks, .sim = &sim};
    lh_scheduler_options o = {.size = sizeof o,
                              .method = &how,
                              .progress = cli_search_show,
                              .context = c};
    lh_scheduler_result best;
    CLI_TRY(lh_scheduler_run(name, view->pipeline, &o, &best, &c->err));
    cli_progress_end();
    view->own_schedule = best.schedule;
    view->method = best.method;
    return LH_OK;
}

lh_status cli_view_schedule(cli *c, cli_view *view, const char *name,
                            const cli_model *model, uint32_t sub_blocks)
{
    view->method = cli_utf8_name(c, name);
    if (cli_is_method(name))
        CLI_TRY(make_schedule(c, view, name, model, sub_blocks));
    else if (!strpbrk(name, "./")) /* probably meant as a method name */
        return cli_check_method(c, "--schedule", name);
    else
        CLI_TRY(cli_read_passes(c, name, model->fifo, &view->own_schedule));
    view->schedule = view->own_schedule;
    return LH_OK;
}

lh_status cli_view_find_schedule(cli *c, cli_view *view,
                                 const cli_problem *problem, const char *given,
                                 const cli_model *model, uint32_t sub_blocks)
{
    view->schedule = given ? NULL : cli_problem_schedule(problem);
    const char *name = view->schedule ? NULL : given ? given : "auto";
    CLI_TRY(cli_check_sub_blocks(c, name, sub_blocks));
    if (name)
        return cli_view_schedule(c, view, name, model, sub_blocks);
    view->method = problem->plan->best.layout.schedule;
    return LH_OK;
}

lh_status cli_view_simulate(cli *c, cli_view *view, const cli_model *model,
                            const char *title)
{
    lh_sim_options sim = cli_sim_options(model);
    CLI_TRY(lh_simulate(view->pipeline, view->schedule, &sim, &view->timeline,
                        &c->err));
    CLI_TRY(lh_analysis_make(view->pipeline, view->schedule, view->timeline,
                             &view->analysis, &c->err));
    CLI_TRY(lh_trace_make(view->pipeline, view->timeline,
                          cli_utf8_name(c, title), &view->trace, &c->err));
    return lh_report_analysis_make(view->trace, view->analysis, &view->shown,
                                   &c->err);
}

void cli_view_fini(cli_view *view)
{
    lh_report_analysis_free(view->shown);
    lh_trace_free(view->trace);
    lh_analysis_free(view->analysis);
    lh_timeline_free(view->timeline);
    lh_schedule_free(view->own_schedule);
    *view = (cli_view){0};
}

lh_status cli_view_report(cli *c, const cli_view *view, lh_report *report,
                          const char *label)
{
    CLI_TRY(
        lh_report_add_trace(report, view->trace, label, view->shown, &c->err));
    lh_report_row row = {
        .method = label,
        .status = lh_timeline_fits(view->timeline, NULL) ? "ok" : "over memory",
        .makespan_ns = lh_timeline_makespan(view->timeline),
        .bubble_ratio = lh_timeline_bubble_ratio(view->timeline),
        .peak_memory = cli_highest_peak(view->timeline, NULL),
    };
    return lh_report_add_row(report, &row, &c->err);
}

lh_status cli_view_add_whatif(cli *c, const cli_view *view,
                              const cli_model *model, const lh_plan *plan,
                              lh_report *report)
{
    lh_sim_options sim = cli_sim_options(model);
    lh_report_what_if ask = {.size = sizeof ask,
                             .pipeline = view->pipeline,
                             .schedule = view->schedule,
                             .method = view->method,
                             .sim = &sim};
    if (plan) {
        ask.after_ns = plan->best.optimizer_ns + plan->best.overhead_ns;
        ask.tokens = (double)plan->job->training.global_batch *
                     plan->job->training.sequence;
        ask.mfu = plan->best.mfu;
    }
    return lh_report_set_what_if(report, &ask, &c->err);
}

lh_status cli_write_html(cli *c, const lh_report *report, const char *path)
{
    char *text = NULL;
    size_t len;
    CLI_TRY(lh_report_format_html(report, &text, &len, &c->err));
    return cli_write_text(c, path, text, len);
}

lh_status cli_write_svg(cli *c, const cli_view *view, const char *path)
{
    lh_svg_options options = {.size = sizeof options, .analysis = view->shown};
    char *text = NULL;
    size_t len;
    CLI_TRY(lh_report_svg(view->trace, &options, &text, &len, &c->err));
    return cli_write_text(c, path, text, len);
}

lh_status cli_write_trace(cli *c, const lh_trace *trace, const char *path)
{
    char *text = NULL;
    size_t len;
    CLI_TRY(lh_trace_format(trace, &text, &len, &c->err));
    return cli_write_text(c, path, text, len);
}

lh_terminal_options cli_terminal(const cli *c)
{
    return (lh_terminal_options){
        .size = sizeof(lh_terminal_options),
        .width = cli_width(),
        .color = cli_color(c),
        .ascii = !cli_unicode(),
    };
}
