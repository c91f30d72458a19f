/* SPDX-License-Identifier: Apache-2.0 */
/* simulate --replicas: hosts that exchange their places. */
#include "course_view.h"
#include "wrap.h"

#include <inttypes.h>

lh_status cli_places_make(cli *c, const cli_play *play,
                          const lh_pipeline *pipeline, lh_places **out)
{
    uint32_t n = lh_pipeline_n_devices(pipeline);
    int64_t *state = calloc(n, sizeof *state);
    const lh_places_options o = {.size = sizeof o,
                                 .n_replicas = play->replicas,
                                 .state_ns = state};
    if (!state)
        return cli_no_memory(c);
    for (uint32_t d = 0; d < n; d++)
        state[d] = play->moving_ns;
    lh_status status = lh_places_make(pipeline, &o, out, &c->err);
    free(state);
    return status;
}

static json_t *hosts_json(const lh_played_exchange *x)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < x->n_hosts; i++)
        if (json_array_append_new(list, json_integer(x->hosts[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *exchange_json(const lh_played_exchange *x, int64_t after_ns)
{
    return json_pack("{s:I, s:o, s:I, s:o, s:o, s:o, s:s}", "step",
                     (json_int_t)x->step, "hosts", hosts_json(x), "moves",
                     (json_int_t)x->n_moves, "before_s",
                     cli_seconds(x->before_ns + after_ns), "predicted_s",
                     cli_seconds(x->predicted_ns + after_ns), "move_s",
                     cli_seconds(x->move_ns), "why", x->why);
}

json_t *cli_exchanges_json(const lh_played *played, int64_t after_ns)
{
    uint32_t n = 0;
    const lh_played_exchange *all =
        played ? lh_played_exchanges(played, &n) : NULL;
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, exchange_json(&all[i], after_ns)) !=
            0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

json_t *cli_exchange_json(const lh_played *played, uint64_t step,
                          int64_t after_ns)
{
    uint32_t n = 0;
    const lh_played_exchange *all =
        played ? lh_played_exchanges(played, &n) : NULL;
    for (uint32_t i = 0; i < n; i++)
        if (all[i].step == step)
            return exchange_json(&all[i], after_ns);
    return NULL;
}

uint32_t cli_exchanges_fill(const lh_played *played, int64_t after_ns,
                            uint32_t most, cli_table *t)
{
    static const char *const head[] = {"from step", "#iteration", "#moving",
                                       "why"};
    char step[24], one[CLI_TIME_TEXT], move[CLI_TIME_TEXT];
    uint32_t n = 0;
    const lh_played_exchange *all =
        played ? lh_played_exchanges(played, &n) : NULL;
    if (n > 0)
        cli_table_row(t, 4, head);
    for (uint32_t i = 0; i < n && i < most; i++) {
        snprintf(step, sizeof step, "%" PRIu64, all[i].step);
        const char *cells[] = {
            step, cli_time_text(all[i].predicted_ns + after_ns, one),
            cli_time_text(all[i].move_ns, move), all[i].why};
        cli_table_row(t, 4, cells);
    }
    return n;
}

void cli_exchanges_print(cli *c, const lh_played *played, int64_t after_ns)
{
    enum { MOST_ROWS = 12 };
    cli_table t = {.most = 8};
    uint32_t n = cli_exchanges_fill(played, after_ns, MOST_ROWS, &t);
    if (n == 0)
        return;
    cli_print(c, "\nHosts that exchange their places\n");
    cli_table_print(c, "", &t);
    if (n > MOST_ROWS)
        cli_print(c, "  ... and %" PRIu32 " more: see --json\n", n - MOST_ROWS);
}
