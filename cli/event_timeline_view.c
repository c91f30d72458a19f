/* SPDX-License-Identifier: Apache-2.0 */
#include "event_timeline_view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

lh_status cli_event_timeline_read(cli *c, const char *path,
                                  const lh_pipeline *pipeline, uint32_t speed,
                                  uint32_t restart,
                                  const lh_host_placement *places,
                                  lh_event_timeline **out)
{
    lh_events *events = NULL;
    const lh_events none = {.name = "no events"};
    const lh_event_timeline_options o = {.size = sizeof o,
                                         .time_divisor = speed,
                                         .placement = places,
                                         .restart_steps = restart};
    if (path)
        CLI_TRY(lh_events_read(path, &events, &c->err));
    lh_status status = lh_event_timeline_make(pipeline, events ? events : &none,
                                              &o, out, &c->err);
    lh_events_free(events);
    return status;
}

json_t *cli_slow_json(const lh_event_timeline *timeline, uint64_t step)
{
    json_t *list = json_array();
    uint32_t state = timeline ? lh_event_timeline_state(timeline, step) : 0;
    uint32_t n =
        timeline ? lh_event_timeline_slow_components(timeline, state, NULL, 0)
                 : 0;
    const char **names = calloc(n + (size_t)1, sizeof *names);
    bool ok = list && names;
    if (ok && n)
        lh_event_timeline_slow_components(timeline, state, names, n);
    for (uint32_t i = 0; ok && i < n; i++)
        ok = json_array_append_new(list, json_string(names[i])) == 0;
    free(names);
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

const char *cli_data_path_name(const cli_model *model)
{
    if (model->delegated)
        return lh_data_path_name(LH_DATA_PATH_MIXED);
    return lh_data_path_name(model->coupled ? LH_DATA_PATH_DIRECT
                                            : LH_DATA_PATH_DELEGATED);
}

/* --- iterations --------------------------------------------------------- */

/* State of a simulated run with events. */
typedef struct event_run {
    const cli_event_simulation *play;
    const cli_view *view;
    const cli_model *model;
    lh_host_placement *places; /* NULL: without --replicas */
    lh_layers *layers;         /* NULL: without --layers */
    int64_t layer_ns;
    lh_event_timeline *timeline;
    int64_t *ns; /* per step */
    int64_t total_ns, after_ns;
    lh_emulation *emulation; /* NULL: the schedule is fixed */
} event_run;

/* Returns a schedule's display name: the view's method for the fixed name that
 * the library gives the initial schedule, otherwise `name`. */
static const char *get_schedule_name(const event_run *p, const char *name)
{
    return strcmp(name, lh_adapt_candidate(0)) == 0 ? p->view->method : name;
}

/* Returns a data path's display name; for direct sends the name that
 * cli_data_path_name() gives under the model's options. */
static const char *get_path_name(const event_run *p, lh_data_path path)
{
    return path == LH_DATA_PATH_DIRECT ? cli_data_path_name(p->model)
                                       : lh_data_path_name(path);
}

/* Returns the schedule and data path in effect at a step: the emulation's or,
 * without --adapt, the view's schedule. */
static lh_emulated_step get_step(const event_run *p, uint32_t step)
{
    uint64_t n;
    return p->emulation ? lh_emulation_steps(p->emulation, &n)[step]
                        : (lh_emulated_step){.name = p->view->method};
}

/* Returns iteration `step` as JSON: time, schedule, data path, slow links and
 * devices, and migrations before it. */
static json_t *step_json(const event_run *p, uint32_t step)
{
    lh_emulated_step was = get_step(p, step);
    return json_pack("{s:I, s:o, s:s, s:s, s:o, s:o*, s:o*}", "step",
                     (json_int_t)step, "seconds", cli_seconds(p->ns[step]),
                     "schedule", get_schedule_name(p, was.name), "path",
                     get_path_name(p, was.path), "slow",
                     cli_slow_json(p->timeline, step), "exchange",
                     cli_migration_at_json(p->emulation, CLI_MIGRATION_HOSTS,
                                           step, p->after_ns),
                     "layers",
                     cli_migration_at_json(p->emulation, CLI_MIGRATION_LAYERS,
                                           step, p->after_ns));
}

/* Returns one schedule switch as JSON, with its times and reason. */
static json_t *switch_json(const event_run *p, const lh_emulated_switch *x)
{
    return json_pack("{s:I, s:s, s:s, s:s, s:o, s:o, s:o, s:s}", "step",
                     (json_int_t)x->step, "from", get_schedule_name(p, x->from),
                     "to", get_schedule_name(p, x->to), "path",
                     get_path_name(p, x->path), "before_s",
                     cli_seconds(x->before_ns + p->after_ns), "predicted_s",
                     cli_seconds(x->predicted_ns + p->after_ns), "bound_s",
                     cli_seconds(x->bound_ns + p->after_ns), "why", x->why);
}

/* Returns the emulation's schedule switches and their number *n; NULL without
 * adaptation. */
static const lh_emulated_switch *get_switches(const event_run *p, uint32_t *n)
{
    *n = 0;
    return p->emulation ? lh_emulation_switches(p->emulation, n) : NULL;
}

/* Simulates the emulated run with its fixed schedule, without --adapt, for
 * comparison: ns[i] is iteration i's time. */
static lh_status simulate_fixed(cli *c, const event_run *p, int64_t *ns)
{
    lh_sim_options sim = cli_sim_options(p->model);
    uint32_t n = p->play->steps;
    CLI_TRY(lh_event_timeline_simulate(p->timeline, p->view->schedule, &sim, n,
                                       ns, &c->err));
    for (uint32_t i = 0; i < n; i++)
        ns[i] += p->after_ns;
    return LH_OK;
}

/* Sums the iteration times that the run would have without --adapt into
 * *total_ns; negative: not available (no adaptation, or jitter). */
static lh_status sum_fixed_times(cli *c, const event_run *p, int64_t *total_ns)
{
    uint32_t n = p->play->steps;
    *total_ns = -1;
    if (!p->emulation || p->play->jitter)
        return LH_OK;
    int64_t *ns = calloc(n, sizeof *ns);
    if (!ns)
        return cli_no_memory(c);
    lh_status status = simulate_fixed(c, p, ns);
    *total_ns = 0;
    for (uint32_t i = 0; i < n; i++)
        *total_ns += ns[i];
    free(ns);
    return status;
}

/* Prints all iterations, switches and migrations as JSON. */
static lh_status print_json(cli *c, const event_run *p)
{
    uint32_t n_switches;
    int64_t kept_ns;
    CLI_TRY(sum_fixed_times(c, p, &kept_ns));
    const lh_emulated_switch *all = get_switches(p, &n_switches);
    json_t *list = json_array(), *switches = json_array();
    json_t *moved[CLI_N_MIGRATION_KINDS] = {NULL};
    if (p->places)
        moved[CLI_MIGRATION_HOSTS] =
            cli_migrations_json(p->emulation, CLI_MIGRATION_HOSTS, p->after_ns);
    if (p->layers)
        moved[CLI_MIGRATION_LAYERS] = cli_migrations_json(
            p->emulation, CLI_MIGRATION_LAYERS, p->after_ns);
    bool ok = list && switches && (moved[CLI_MIGRATION_HOSTS] || !p->places) &&
              (moved[CLI_MIGRATION_LAYERS] || !p->layers);
    for (uint32_t i = 0; ok && i < p->play->steps; i++)
        ok = json_array_append_new(list, step_json(p, i)) == 0;
    for (uint32_t i = 0; ok && i < n_switches; i++)
        ok = json_array_append_new(switches, switch_json(p, &all[i])) == 0;
    if (!ok) {
        json_decref(list);
        json_decref(switches);
        json_decref(moved[CLI_MIGRATION_HOSTS]);
        json_decref(moved[CLI_MIGRATION_LAYERS]);
        return cli_no_memory(c);
    }
    return cli_put_json(
        c,
        json_pack("{s:s, s:s, s:o, s:o*, s:o, s:o, s:o*, s:o*}", "schedule",
                  p->view->method, "path", cli_data_path_name(p->model),
                  "total_s", cli_seconds(p->total_ns), "kept_s",
                  kept_ns < 0 ? NULL : cli_seconds(kept_ns), "iterations", list,
                  "switches", switches, "exchanges", moved[CLI_MIGRATION_HOSTS],
                  "layer_moves", moved[CLI_MIGRATION_LAYERS]));
}

/* Growing text buffer. */
typedef struct text_buffer {
    char *text;
    size_t len, room;
} text_buffer;

/* Appends to a growing buffer; -1: out of memory (callback for
 * json_dump_callback()). */
static int append_text(const char *text, size_t len, void *of)
{
    text_buffer *to = of;
    if (len > to->room - to->len) {
        size_t room = 2 * to->room + len;
        char *more = realloc(to->text, room);
        if (!more)
            return -1;
        to->text = more;
        to->room = room;
    }
    memcpy(to->text + to->len, text, len);
    to->len += len;
    return 0;
}

/* Writes one JSON line per iteration to the log. */
static lh_status write_log(cli *c, const event_run *p)
{
    text_buffer log = {0};
    bool ok = true;
    for (uint32_t i = 0; ok && i < p->play->steps; i++) {
        json_t *j = step_json(p, i);
        ok = j &&
             json_dump_callback(j, append_text, &log,
                                JSON_COMPACT | JSON_REAL_PRECISION(12)) == 0 &&
             append_text("\n", 1, &log) == 0;
        json_decref(j);
    }
    lh_status status =
        ok ? cli_write(c, p->play->log, log.text, log.len) : cli_no_memory(c);
    free(log.text);
    return status;
}

/* Returns the end (exclusive) of the iterations from `from` on that have the
 * same event timeline state (active event set). */
static uint32_t find_span_end(const event_run *p, uint32_t from)
{
    uint32_t end = from, state = lh_event_timeline_state(p->timeline, from);
    while (end < p->play->steps &&
           lh_event_timeline_state(p->timeline, end) == state)
        end++;
    return end;
}

/* Prints the ranges of iterations with the same slow links and devices: mean
 * time, ratio to the time without events (quiet_ns), and total; at most
 * MOST_ROWS. */
static void print_spans(cli *c, const event_run *p, int64_t quiet_ns)
{
    enum { MOST_ROWS = 14 };
    static const char *const head[] = {"steps", "slow", "#iteration", "#times",
                                       "#all"};
    char steps[32], slow[CLI_SLOW_TEXT], one[CLI_TIME_TEXT], factor[24],
        all[CLI_TIME_TEXT];
    uint32_t n = 0;
    cli_table t = {0};
    for (uint32_t i = 0, end; i < p->play->steps; i = end) {
        int64_t sum = 0;
        end = find_span_end(p, i);
        for (uint32_t k = i; k < end; k++)
            sum += p->ns[k];
        uint32_t state = lh_event_timeline_state(p->timeline, i);
        if (state == 0 || n++ >= MOST_ROWS)
            continue;
        if (n == 1)
            cli_table_row(&t, 5, head);
        int64_t mean = sum / (end - i);
        snprintf(steps, sizeof steps, "%" PRIu32 " to %" PRIu32, i, end - 1);
        snprintf(factor, sizeof factor, "%.2f",
                 quiet_ns > 0 ? (double)mean / (double)quiet_ns : 1.0);
        const char *cells[] = {steps, cli_slow_text(p->timeline, state, slow),
                               cli_time_text(mean, one), factor,
                               cli_time_text(sum, all)};
        cli_table_row(&t, 5, cells);
    }
    if (n == 0)
        return;
    cli_print(c, "\nEvents\n");
    cli_table_print(c, "", &t);
    if (n > MOST_ROWS)
        cli_print(c, "  ... and %" PRIu32 " more: see --json or --log\n",
                  n - MOST_ROWS);
}

/* Adds the schedule switches with their reasons to the table, at most `most`
 * rows; returns the number of all switches. */
static uint32_t fill_switches(const event_run *p, uint32_t most, cli_table *t)
{
    static const char *const head[] = {"from step", "schedule", "path",
                                       "#iteration", "why"};
    char step[24], one[CLI_TIME_TEXT];
    uint32_t n;
    const lh_emulated_switch *all = get_switches(p, &n);
    cli_table_row(t, 5, head);
    for (uint32_t i = 0; i < n && i < most; i++) {
        const lh_emulated_switch *x = &all[i];
        snprintf(step, sizeof step, "%" PRIu64, x->step);
        const char *cells[] = {
            step, get_schedule_name(p, x->to), get_path_name(p, x->path),
            cli_time_text(x->predicted_ns + p->after_ns, one), x->why};
        cli_table_row(t, 5, cells);
    }
    return n;
}

/* Prints the schedule switches, at most MOST_ROWS. */
static void print_switches(cli *c, const event_run *p)
{
    enum { MOST_ROWS = 24 };
    uint32_t n;
    get_switches(p, &n);
    if (n == 0)
        return;
    cli_table t = {0};
    fill_switches(p, MOST_ROWS, &t);
    cli_print(c, "\nSwitches\n");
    cli_table_print(c, "", &t);
    if (n > MOST_ROWS)
        cli_print(c, "  ... and %" PRIu32 " more: see --json\n", n - MOST_ROWS);
}

/* Prints schedule, iterations, total times, ranges, switches and migrations as
 * text. quiet_ns: iteration time without events. */
static lh_status print_text(cli *c, const event_run *p, int64_t quiet_ns)
{
    char a[CLI_TIME_TEXT], b[CLI_TIME_TEXT];
    int64_t kept_ns;
    uint32_t n_slow = 0;
    for (uint32_t i = 0; i < p->play->steps; i++)
        n_slow += lh_event_timeline_state(p->timeline, i) != 0;
    cli_print(c, "schedule      %s, %s path\n", p->view->method,
              cli_data_path_name(p->model));
    cli_print(c,
              "iterations    %" PRIu32 ", of which %" PRIu32 " have events\n",
              p->play->steps, n_slow);
    cli_print(c, "total         %s\n", cli_time_text(p->total_ns, a));
    cli_print(c, "no events     %s, %s per iteration\n",
              cli_time_text(quiet_ns * p->play->steps, a),
              cli_time_text(quiet_ns, b));
    CLI_TRY(sum_fixed_times(c, p, &kept_ns));
    if (kept_ns >= 0)
        cli_print(c, "no switch     %s with %s throughout\n",
                  cli_time_text(kept_ns, a), p->view->method);
    print_spans(c, p, quiet_ns);
    print_switches(c, p);
    cli_migrations_print(c, p->emulation, CLI_MIGRATION_HOSTS, p->after_ns);
    cli_migrations_print(c, p->emulation, CLI_MIGRATION_LAYERS, p->after_ns);
    return LH_OK;
}

/* --- charts ------------------------------------------------------------- */

/* Writes the iterations' HTML report. */
static lh_status write_page(cli *c, const event_run *p,
                            const lh_report_iterations *drawn)
{
    lh_report *report = NULL;
    char text[CLI_TIME_TEXT];
    CLI_TRY(lh_report_make(cli_utf8_name(c, c->operands[0]), &report, &c->err));
    cli_table t = {0};
    lh_status status =
        lh_report_add_fact(report, "events", p->play->events, &c->err);
    if (status == LH_OK)
        status =
            lh_report_add_fact(report, "schedule", p->view->method, &c->err);
    if (status == LH_OK)
        status = lh_report_add_fact(report, "all iterations",
                                    cli_time_text(p->total_ns, text), &c->err);
    if (status == LH_OK && drawn->n_series == 2) {
        int64_t kept_ns = 0;
        for (uint32_t i = 0; i < drawn->n_iterations; i++)
            kept_ns += drawn->ns[drawn->n_iterations + (size_t)i];
        status = lh_report_add_fact(report, "without adapting",
                                    cli_time_text(kept_ns, text), &c->err);
    }
    if (status == LH_OK)
        status = lh_report_add_iterations(report, drawn, &c->err);
    if (status == LH_OK) {
        if (fill_switches(p, UINT32_MAX, &t) == 0 && p->play->adapt)
            cli_table_note(&t, "to no other schedule: none pays off");
        status = cli_table_report(c, "Switches and their reasons", &t, report);
    }
    for (int i = 0; status == LH_OK && i < CLI_N_MIGRATION_KINDS; i++) {
        cli_table moved = {0};
        if (cli_migrations_fill_table(p->emulation, (cli_migration_kind)i,
                                      p->after_ns, UINT32_MAX, &moved) > 0)
            status = cli_table_report(
                c, cli_migration_title((cli_migration_kind)i), &moved, report);
    }
    if (status == LH_OK)
        status = cli_write_html(c, report, p->play->html);
    lh_report_free(report);
    return status;
}

/* Draws the chart of all iteration times; with --adapt also those of the run
 * with a fixed schedule. */
static lh_status draw_steps(cli *c, const event_run *p)
{
    const char *const names[] = {p->emulation ? "adapting" : p->view->method,
                                 p->view->method};
    const uint32_t n = p->play->steps;
    uint32_t n_switches;
    const lh_emulated_switch *all = get_switches(p, &n_switches);
    const uint32_t n_hosts =
        cli_migrations_add_marks(p->emulation, CLI_MIGRATION_HOSTS, NULL);
    const uint32_t n_moved =
        n_hosts +
        cli_migrations_add_marks(p->emulation, CLI_MIGRATION_LAYERS, NULL);
    cli_slow_spans spans = {0};
    lh_report_mark *marks =
        calloc(n_switches + n_moved + (size_t)1, sizeof *marks);
    int64_t *ns = calloc(2 * (size_t)n, sizeof *ns);
    const bool keeps = p->emulation && !p->play->jitter;
    lh_report_iterations drawn = {.size = sizeof drawn,
                                  .title = "Iterations",
                                  .n_iterations = n,
                                  .n_series = keeps ? 2 : 1,
                                  .series = names,
                                  .ns = ns,
                                  .n_marks = n_switches + n_moved,
                                  .marks = marks};
    lh_status status = marks && ns
                           ? cli_find_slow_spans(c, p->timeline, 0, n, &spans)
                           : cli_no_memory(c);
    if (status == LH_OK) {
        memcpy(ns, p->ns, n * sizeof *ns);
        for (uint32_t i = 0; i < n_switches; i++)
            marks[i] =
                (lh_report_mark){all[i].step, get_schedule_name(p, all[i].to)};
        cli_migrations_add_marks(p->emulation, CLI_MIGRATION_HOSTS,
                                 marks + n_switches);
        cli_migrations_add_marks(p->emulation, CLI_MIGRATION_LAYERS,
                                 marks + n_switches + n_hosts);
        drawn.spans = spans.all;
        drawn.n_spans = spans.n;
    }
    if (status == LH_OK && keeps)
        status = simulate_fixed(c, p, ns + n);
    if (status == LH_OK && p->play->svg)
        status = cli_write_event_timeline(c, &drawn, p->play->svg);
    if (status == LH_OK && p->play->html)
        status = write_page(c, p, &drawn);
    cli_slow_spans_fini(&spans);
    free(marks);
    free(ns);
    return status;
}

/* Simulates an iteration in `state` of the event timeline (active event set)
 * with delegated messages (sent by a helper thread through host memory); *ns is
 * its time. */
static lh_status simulate_state(cli *c, const event_run *p,
                                const lh_delegation *delegation, uint32_t state,
                                int64_t *ns)
{
    const lh_sim_options sim = cli_sim_options(p->model);
    lh_pipeline *plain, *staged = NULL;
    lh_timeline *t = NULL;
    lh_sim_options how;
    CLI_TRY(lh_event_timeline_pipeline(p->timeline, state, &plain, &c->err));
    lh_status status =
        lh_delegate(plain, &sim, delegation, &staged, &how, &c->err);
    if (status == LH_OK)
        status = lh_simulate(staged, p->view->schedule, &how, &t, &c->err);
    if (status == LH_OK)
        *ns = lh_timeline_makespan(t);
    lh_timeline_free(t);
    lh_pipeline_free(staged);
    lh_pipeline_free(plain);
    return status;
}

/* Allocates *links, a flag per link that is true if its sends are delegated (by
 * a helper thread through host memory), and sets *d to it. Links that events
 * added are not delegated. The caller frees *links. */
static lh_status set_delegated_links(cli *c, const event_run *p,
                                     lh_delegation *d, bool **links)
{
    uint32_t own = lh_pipeline_n_links(p->view->pipeline);
    lh_pipeline *quiet;
    *d = *p->play->path;
    if (!d->links)
        return LH_OK;
    CLI_TRY(lh_event_timeline_pipeline(p->timeline, 0, &quiet, &c->err));
    *links = calloc(lh_pipeline_n_links(quiet) + (size_t)1, sizeof **links);
    lh_pipeline_free(quiet);
    if (!*links)
        return cli_no_memory(c);
    memcpy(*links, d->links, own * sizeof **links);
    d->links = *links;
    return LH_OK;
}

/* Simulates every state of the event timeline (active event set) once with
 * delegated messages (sent by a helper thread through host memory), and fills
 * in the iteration times. */
static lh_status simulate_delegated(cli *c, event_run *p)
{
    lh_delegation d;
    bool *links = NULL;
    uint32_t n_states = lh_event_timeline_n_states(p->timeline);
    int64_t *ns = calloc(n_states, sizeof *ns);
    lh_status status =
        ns ? set_delegated_links(c, p, &d, &links) : cli_no_memory(c);
    for (uint32_t s = 0; status == LH_OK && s < n_states; s++)
        status = simulate_state(c, p, &d, s, &ns[s]);
    for (uint32_t i = 0; status == LH_OK && i < p->play->steps; i++)
        p->ns[i] = ns[lh_event_timeline_state(p->timeline, i)];
    free(links);
    free(ns);
    return status;
}

/* Emulates the adaptive run, step by step, and fills in the iteration times. */
static lh_status simulate_adaptive(cli *c, event_run *p)
{
    lh_sim_options sim = cli_sim_options(p->model);
    uint64_t n = p->play->steps;
    const lh_delegation d = {.size = sizeof d,
                             .staging_ns = p->play->staging_ns};
    const lh_adapt_options a = {.size = sizeof a,
                                .sim = &sim,
                                .delegation = &d,
                                .keep_reduction_order = p->play->same_sums};
    const lh_adapt_emulate_options o = {.size = sizeof o,
                                        .adapt = &a,
                                        .jitter = p->play->jitter,
                                        .exchange = p->play->migration_ns > 0,
                                        .layers = p->layers,
                                        .layer_ns = p->layer_ns};
    CLI_TRY(lh_adapt_emulate(p->timeline, p->view->schedule, &o, n,
                             &p->emulation, &c->err));
    const lh_emulated_step *steps = lh_emulation_steps(p->emulation, &n);
    for (uint64_t i = 0; i < n; i++)
        p->ns[i] = steps[i].ns;
    return LH_OK;
}

/* Simulates all iterations, with or without --adapt, adds after_ns (time after
 * the pipeline) to each, and writes and prints the results. */
static lh_status simulate_steps(cli *c, event_run *p, int64_t after_ns)
{
    lh_sim_options sim = cli_sim_options(p->model);
    uint32_t n = p->play->steps;
    if (!(p->ns = calloc(n, sizeof *p->ns)))
        return cli_no_memory(c);
    if (p->play->adapt)
        CLI_TRY(simulate_adaptive(c, p));
    else if (p->play->path)
        CLI_TRY(simulate_delegated(c, p));
    else
        CLI_TRY(lh_event_timeline_simulate(p->timeline, p->view->schedule, &sim,
                                           n, p->ns, &c->err));
    p->after_ns = after_ns;
    for (uint32_t i = 0; i < n; i++) {
        p->ns[i] += after_ns;
        p->total_ns += p->ns[i];
    }
    if (p->play->log)
        CLI_TRY(write_log(c, p));
    if (p->play->html || p->play->svg)
        CLI_TRY(draw_steps(c, p));
    if (c->common.json)
        return print_json(c, p);
    return print_text(c, p, lh_timeline_makespan(p->view->timeline) + after_ns);
}

lh_status cli_event_simulation_run(cli *c, const cli_event_simulation *play,
                                   const cli_view *view, const cli_model *model,
                                   int64_t after_ns)
{
    event_run p = {.play = play, .view = view, .model = model};
    lh_status status = LH_OK;
    if (play->replicas > 0)
        status = cli_placement_build(c, play, view->pipeline, &p.places);
    if (status == LH_OK && play->layers)
        status =
            cli_layers_build(c, play, view->pipeline, &p.layers, &p.layer_ns);
    if (status == LH_OK)
        status = cli_event_timeline_read(c, play->events, view->pipeline, 1,
                                         play->restart, p.places, &p.timeline);
    if (status == LH_OK)
        status = simulate_steps(c, &p, after_ns);
    free(p.ns);
    lh_emulation_free(p.emulation);
    lh_event_timeline_free(p.timeline);
    lh_layers_free(p.layers);
    lh_host_placement_free(p.places);
    return status;
}
