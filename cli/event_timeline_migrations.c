/* SPDX-License-Identifier: Apache-2.0 */
/* Implements simulate --moving: hosts that swap placements, and layers that
 * migrate. */
#include "event_timeline_view.h"
#include "values.h"
#include "wrap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

lh_status cli_check_replicas(cli *c, uint32_t replicas, const lh_plan *plan)
{
    if (!replicas || !plan || plan->best.layout.data == replicas)
        return LH_OK;
    return cli_usage(c, "--replicas %" PRIu32 ": the plan has %" PRIu32,
                     replicas, plan->best.layout.data);
}

lh_status cli_placement_build(cli *c, const cli_event_simulation *play,
                              const lh_pipeline *pipeline,
                              lh_host_placement **out)
{
    uint32_t n = lh_pipeline_n_devices(pipeline);
    int64_t *state = calloc(n, sizeof *state);
    const lh_host_placement_options o = {
        .size = sizeof o, .n_replicas = play->replicas, .state_ns = state};
    if (!state)
        return cli_no_memory(c);
    for (uint32_t d = 0; d < n; d++)
        state[d] = play->migration_ns;
    lh_status status = lh_host_placement_make(pipeline, &o, out, &c->err);
    free(state);
    return status;
}

lh_status cli_layers_build(cli *c, const cli_event_simulation *play,
                           const lh_pipeline *pipeline, lh_layers **out,
                           int64_t *layer_ns)
{
    uint64_t sum;
    uint32_t n = lh_pipeline_n_chunks(pipeline);
    uint32_t *numbers = calloc(n, sizeof *numbers);
    if (!numbers)
        return cli_no_memory(c);
    lh_status status = LH_OK;
    if (!cli_parse_numbers(play->layers, 1, n, numbers, &sum))
        status = cli_usage(c,
                           "--layers: '%s' is not a list of whole numbers of "
                           "at least 1, one for each of the %" PRIu32
                           " chunks, such as 8,8,8",
                           play->layers, n);
    if (status == LH_OK)
        status = lh_layers_make(pipeline, numbers, out, &c->err);
    if (status == LH_OK)
        *layer_ns =
            (int64_t)((double)play->migration_ns *
                          lh_pipeline_n_devices(pipeline) / (double)sum +
                      0.5);
    free(numbers);
    return status;
}

/* --- migrations --------------------------------------------------------- */

/* Host or layer migration. */
typedef struct migration {
    uint64_t step;
    uint32_t n, n_moves;
    const uint32_t *numbers;
    int64_t before_ns, predicted_ns, move_ns;
    const char *why;
} migration;

/* Counts the migrations in an emulated run: exchanged hosts or moved layers,
 * according to `what`; 0 for NULL. */
static uint32_t count_moved(const lh_emulation *emulation,
                            cli_migration_kind what)
{
    uint32_t n = 0;
    if (emulation && what == CLI_MIGRATION_HOSTS)
        lh_emulation_exchanges(emulation, &n);
    else if (emulation)
        lh_emulation_migrations(emulation, &n);
    return n;
}

/* Returns migration number `i` of kind `what` (host exchange or layer
 * migration) as a struct common to both, whose arrays the emulation owns. */
static migration find_migration(const lh_emulation *emulation,
                                cli_migration_kind what, uint32_t i)
{
    uint32_t n;
    if (what == CLI_MIGRATION_HOSTS) {
        const lh_emulated_exchange *x =
            &lh_emulation_exchanges(emulation, &n)[i];
        return (migration){x->step,      x->n_hosts,      x->n_moves, x->hosts,
                           x->before_ns, x->predicted_ns, x->move_ns, x->why};
    }
    const lh_emulated_migration *x = &lh_emulation_migrations(emulation, &n)[i];
    return (migration){x->step,      x->n_chunks,     x->n_moves, x->numbers,
                       x->before_ns, x->predicted_ns, x->move_ns, x->why};
}

/* Returns the new hosts or layers per chunk as a list; NULL: out of memory. */
static json_t *make_numbers_json(const migration *x)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < x->n; i++)
        if (json_array_append_new(list, json_integer(x->numbers[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Returns migration i of kind `what` (host exchange or layer migration) as
 * JSON. after_ns, the time after the pipeline, is added to its iteration times.
 */
static json_t *moved_json(const lh_emulation *emulation,
                          cli_migration_kind what, uint32_t i, int64_t after_ns)
{
    const migration x = find_migration(emulation, what, i);
    return json_pack("{s:I, s:o, s:I, s:o, s:o, s:o, s:s}", "step",
                     (json_int_t)x.step,
                     what == CLI_MIGRATION_HOSTS ? "hosts" : "layers",
                     make_numbers_json(&x), "moves", (json_int_t)x.n_moves,
                     "before_s", cli_seconds(x.before_ns + after_ns),
                     "predicted_s", cli_seconds(x.predicted_ns + after_ns),
                     "move_s", cli_seconds(x.move_ns), "why", x.why);
}

json_t *cli_migrations_json(const lh_emulation *emulation,
                            cli_migration_kind what, int64_t after_ns)
{
    uint32_t n = count_moved(emulation, what);
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        if (json_array_append_new(
                list, moved_json(emulation, what, i, after_ns)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

json_t *cli_migration_at_json(const lh_emulation *emulation,
                              cli_migration_kind what, uint64_t step,
                              int64_t after_ns)
{
    uint32_t n = count_moved(emulation, what);
    for (uint32_t i = 0; i < n; i++)
        if (find_migration(emulation, what, i).step == step)
            return moved_json(emulation, what, i, after_ns);
    return NULL;
}

uint32_t cli_migrations_fill_table(const lh_emulation *emulation,
                                   cli_migration_kind what, int64_t after_ns,
                                   uint32_t most, cli_table *t)
{
    static const char *const head[] = {"from step", "#iteration", "#moving",
                                       "why"};
    char step[24], one[CLI_TIME_TEXT], move[CLI_TIME_TEXT];
    uint32_t n = count_moved(emulation, what);
    if (n > 0)
        cli_table_row(t, 4, head);
    for (uint32_t i = 0; i < n && i < most; i++) {
        const migration x = find_migration(emulation, what, i);
        snprintf(step, sizeof step, "%" PRIu64, x.step);
        const char *cells[] = {step,
                               cli_time_text(x.predicted_ns + after_ns, one),
                               cli_time_text(x.move_ns, move), x.why};
        cli_table_row(t, 4, cells);
    }
    return n;
}

uint32_t cli_migrations_add_marks(const lh_emulation *emulation,
                                  cli_migration_kind what,
                                  lh_report_mark *marks)
{
    uint32_t n = count_moved(emulation, what);
    for (uint32_t i = 0; marks && i < n; i++)
        marks[i] = (lh_report_mark){
            find_migration(emulation, what, i).step,
            what == CLI_MIGRATION_HOSTS ? "hosts exchanged" : "layers move"};
    return n;
}

const char *cli_migration_title(cli_migration_kind what)
{
    return what == CLI_MIGRATION_HOSTS ? "Host exchanges" : "Layer migrations";
}

void cli_migrations_print(cli *c, const lh_emulation *emulation,
                          cli_migration_kind what, int64_t after_ns)
{
    enum { MOST_ROWS = 12 };
    cli_table t = {0};
    uint32_t n =
        cli_migrations_fill_table(emulation, what, after_ns, MOST_ROWS, &t);
    if (n == 0)
        return;
    cli_print(c, "\n%s\n", cli_migration_title(what));
    cli_table_print(c, "", &t);
    if (n > MOST_ROWS)
        cli_print(c, "  ... and %" PRIu32 " more: see --json\n", n - MOST_ROWS);
}
