/* SPDX-License-Identifier: Apache-2.0 */
#include "course_view.h"
#include "wrap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

lh_status cli_course_read(cli *c, const char *path, const lh_pipeline *pipeline,
                          uint32_t speed, lh_course **out)
{
    lh_events *events;
    const lh_course_options o = {.size = sizeof o, .speed = speed};
    CLI_TRY(lh_events_read(path, &events, &c->err));
    lh_status status = lh_course_make(pipeline, events, &o, out, &c->err);
    lh_events_free(events);
    return status;
}

json_t *cli_slow_json(const lh_course *course, uint64_t step)
{
    json_t *list = json_array();
    uint32_t state = course ? lh_course_state(course, step) : 0;
    uint32_t n = course ? lh_course_slow(course, state, NULL, 0) : 0;
    const char **names = calloc(n + (size_t)1, sizeof *names);
    bool ok = list && names;
    if (ok && n)
        lh_course_slow(course, state, names, n);
    for (uint32_t i = 0; ok && i < n; i++)
        ok = json_array_append_new(list, json_string(names[i])) == 0;
    free(names);
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

char *cli_slow_text(const lh_course *course, uint32_t state, char *text)
{
    enum { SHOWN = 4 };
    const char *names[SHOWN];
    uint32_t n = lh_course_slow(course, state, names, SHOWN);
    size_t len =
        (size_t)snprintf(text, CLI_SLOW_TEXT, "%s", n ? "" : "nothing");
    for (uint32_t i = 0; i < n && len < CLI_SLOW_TEXT; i++) {
        const char *name = i < SHOWN ? names[i] : "";
        size_t room = CLI_SLOW_TEXT - len;
        if (i == SHOWN || strlen(name) + 6 > room) {
            snprintf(text + len, room, ", ...");
            break;
        }
        len += (size_t)snprintf(text + len, room, "%s%s", i ? ", " : "", name);
    }
    return text;
}

const char *cli_path_of(const cli_model *model)
{
    return model->coupled ? "direct" : "delegated";
}

/* --- iterations ------------------------------------------------------------
 */

typedef struct playing {
    const cli_play *play;
    const cli_view *view;
    const cli_model *model;
    lh_course *course;
    int64_t *ns; /* per step */
    int64_t total_ns;
} playing;

static json_t *step_json(const playing *p, uint32_t step)
{
    return json_pack("{s:I, s:o, s:s, s:s, s:o}", "step", (json_int_t)step,
                     "seconds", cli_seconds(p->ns[step]), "schedule",
                     p->view->method, "path", cli_path_of(p->model), "slow",
                     cli_slow_json(p->course, step));
}

static lh_status print_json(cli *c, const playing *p)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (uint32_t i = 0; ok && i < p->play->steps; i++)
        ok = json_array_append_new(list, step_json(p, i)) == 0;
    if (!ok) {
        json_decref(list);
        return cli_no_memory(c);
    }
    return cli_put_json(
        c, json_pack("{s:s, s:s, s:o, s:o, s:[]}", "schedule", p->view->method,
                     "path", cli_path_of(p->model), "total_s",
                     cli_seconds(p->total_ns), "iterations", list, "switches"));
}

typedef struct gathered {
    char *text;
    size_t len, room;
} gathered;

static int gather(const char *text, size_t len, void *of)
{
    gathered *to = of;
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

static lh_status write_log(cli *c, const playing *p)
{
    gathered log = {0};
    bool ok = true;
    for (uint32_t i = 0; ok && i < p->play->steps; i++) {
        json_t *j = step_json(p, i);
        ok = j &&
             json_dump_callback(j, gather, &log,
                                JSON_COMPACT | JSON_REAL_PRECISION(12)) == 0 &&
             gather("\n", 1, &log) == 0;
        json_decref(j);
    }
    lh_status status =
        ok ? cli_write(c, p->play->log, log.text, log.len) : cli_no_memory(c);
    free(log.text);
    return status;
}

/* Steps from `from` on that are in its state. */
static uint32_t end_of_span(const playing *p, uint32_t from)
{
    uint32_t end = from, state = lh_course_state(p->course, from);
    while (end < p->play->steps && lh_course_state(p->course, end) == state)
        end++;
    return end;
}

static void print_spans(cli *c, const playing *p, int64_t quiet_ns)
{
    enum { MOST_ROWS = 14 };
    static const char *const head[] = {"steps", "slow", "#iteration", "#times",
                                       "#all"};
    char steps[32], slow[CLI_SLOW_TEXT], one[CLI_TIME_TEXT], factor[24],
        all[CLI_TIME_TEXT];
    uint32_t n = 0;
    cli_table t = {0};
    cli_table_row(&t, 5, head);
    for (uint32_t i = 0, end; i < p->play->steps; i = end) {
        end = end_of_span(p, i);
        uint32_t state = lh_course_state(p->course, i);
        if (state == 0 || n++ >= MOST_ROWS)
            continue;
        snprintf(steps, sizeof steps, "%" PRIu32 " to %" PRIu32, i, end - 1);
        snprintf(factor, sizeof factor, "%.2f",
                 quiet_ns > 0 ? (double)p->ns[i] / (double)quiet_ns : 1.0);
        const char *cells[] = {steps, cli_slow_text(p->course, state, slow),
                               cli_time_text(p->ns[i], one), factor,
                               cli_time_text(p->ns[i] * (end - i), all)};
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

static void print_text(cli *c, const playing *p, int64_t quiet_ns)
{
    char a[CLI_TIME_TEXT], b[CLI_TIME_TEXT];
    uint32_t n_slow = 0;
    for (uint32_t i = 0; i < p->play->steps; i++)
        n_slow += lh_course_state(p->course, i) != 0;
    cli_print(c, "schedule      %s, %s path\n", p->view->method,
              cli_path_of(p->model));
    cli_print(c,
              "iterations    %" PRIu32 ", of which %" PRIu32 " have events\n",
              p->play->steps, n_slow);
    cli_print(c, "total         %s\n", cli_time_text(p->total_ns, a));
    cli_print(c, "without       %s, %s an iteration\n",
              cli_time_text(quiet_ns * p->play->steps, a),
              cli_time_text(quiet_ns, b));
    print_spans(c, p, quiet_ns);
}

static lh_status play_steps(cli *c, playing *p, int64_t after_ns)
{
    lh_sim_options sim = cli_sim_options(p->model);
    uint32_t n = p->play->steps;
    if (!(p->ns = calloc(n, sizeof *p->ns)))
        return cli_no_memory(c);
    CLI_TRY(
        lh_course_play(p->course, p->view->schedule, &sim, n, p->ns, &c->err));
    for (uint32_t i = 0; i < n; i++) {
        p->ns[i] += after_ns;
        p->total_ns += p->ns[i];
    }
    if (p->play->log)
        CLI_TRY(write_log(c, p));
    if (c->common.json)
        return print_json(c, p);
    print_text(c, p, lh_timeline_makespan(p->view->timeline) + after_ns);
    return LH_OK;
}

lh_status cli_play_run(cli *c, const cli_play *play, const cli_view *view,
                       const cli_model *model, int64_t after_ns)
{
    playing p = {.play = play, .view = view, .model = model};
    CLI_TRY(cli_course_read(c, play->events, view->pipeline, 1, &p.course));
    lh_status status = play_steps(c, &p, after_ns);
    free(p.ns);
    lh_course_free(p.course);
    return status;
}
