/* SPDX-License-Identifier: Apache-2.0 */
/* Implements --layers-at and --places-at: layer migration between chunks and
 * rank migration during a run. */
#define _POSIX_C_SOURCE 200809L
#include "train_internal.h"
#include "values.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- parsing ------------------------------------------------------------ */

/* Fails with a usage error: the option's text is not STEP=N,N,... with numbers
 * of at least `least`, 0 or 1. */
static lh_status fail_numbers(cli *c, const char *option, uint32_t least,
                              const char *text)
{
    return cli_usage(c,
                     "--%s: '%.80s' is not STEP=N,N,... with whole numbers%s, "
                     "such as 10=2,1",
                     option, text,
                     least ? " of at least 1 (each chunk needs a layer)" : "");
}

/* Parses one layer or rank migration, "STEP=N,N,...", of an option; fails for a
 * number below `least`, or a step beyond the run. */
static lh_status read_move(cli *c, const char *option, uint32_t least,
                           const char *text, train_migration *out)
{
    const train_settings *s = c->settings;
    char number[16];
    const char *at = strchr(text, '=');
    size_t len = at ? (size_t)(at - text) : sizeof number;
    if (len >= sizeof number)
        return fail_numbers(c, option, least, text);
    memcpy(number, text, len);
    number[len] = 0;
    if (!cli_parse_count(number, 0, UINT32_MAX, &out->step))
        return fail_numbers(c, option, least, text);
    uint32_t n = 1;
    for (const char *k = ++at; *k; k++)
        n += *k == ',';
    if (!(out->numbers = calloc(n, sizeof *out->numbers)))
        return cli_no_memory(c);
    uint64_t sum;
    if (!cli_parse_numbers(at, least, n, out->numbers, &sum))
        return fail_numbers(c, option, least, text);
    out->n = n;
    if (out->step >= s->steps)
        return cli_usage(c,
                         "--%s %.80s: the run has iterations 0 to %" PRIu32
                         "; see --steps",
                         option, text, s->steps - 1);
    return LH_OK;
}

/* Compares migrations by step, for qsort(). */
static int compare_steps(const void *a, const void *b)
{
    const train_migration *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

/* Reads the layer or rank migrations of an option, separated by semicolons, and
 * sorts them by step; fails for two at one step, or a number below `least`.
 * Without the option there are none. */
static lh_status read_list(cli *c, const char *option, const char *text,
                           uint32_t least, train_migrations *out)
{
    uint32_t n = 1;
    if (!text)
        return LH_OK;
    for (const char *at = text; *at; at++)
        n += *at == ';';
    char *copy = strdup(text), *rest = copy;
    out->all = calloc(n, sizeof *out->all);
    lh_status status = copy && out->all ? LH_OK : cli_no_memory(c);
    while (status == LH_OK && rest) {
        char *one = rest;
        rest = strchr(one, ';');
        if (rest)
            *rest++ = 0;
        status = read_move(c, option, least, one, &out->all[out->n++]);
    }
    free(copy);
    CLI_TRY(status);
    qsort(out->all, out->n, sizeof *out->all, compare_steps);
    for (uint32_t i = 1; i < out->n; i++)
        if (out->all[i].step == out->all[i - 1].step)
            return cli_usage(c, "--%s: iteration %" PRIu64 " is given twice",
                             option, out->all[i].step);
    return LH_OK;
}

/* Fails with a usage error unless each --layers-at migration has n numbers, one
 * per chunk, with the same sum of layers as before. */
static lh_status check_layers(cli *c, const train_changes *changes, uint32_t n)
{
    for (uint32_t i = 0; i < changes->layers.n; i++) {
        const train_migration *x = &changes->layers.all[i];
        uint64_t sum = 0;
        for (uint32_t k = 0; k < x->n; k++)
            sum += x->numbers[k];
        if (x->n != n)
            return cli_usage(c,
                             "--layers-at %" PRIu64 ": numbers of %" PRIu32
                             " chunks; the pipeline has %" PRIu32,
                             x->step, x->n, n);
        if (sum != changes->n_layers)
            return cli_usage(c,
                             "--layers-at %" PRIu64 ": %" PRIu64
                             " layers; the chunks have %" PRIu64 " together",
                             x->step, sum, changes->n_layers);
    }
    return LH_OK;
}

/* Fails with a usage error unless each --places-at migration is a permutation
 * of the n ranks' places. */
static lh_status check_places(cli *c, const train_changes *changes, uint32_t n)
{
    for (uint32_t i = 0; i < changes->hosts.n; i++) {
        const train_migration *x = &changes->hosts.all[i];
        bool *there = calloc((size_t)n + 1, sizeof *there);
        if (!there)
            return cli_no_memory(c);
        bool valid = x->n == n;
        for (uint32_t k = 0; valid && k < n; k++) {
            valid = x->numbers[k] < n && !there[x->numbers[k]];
            if (valid)
                there[x->numbers[k]] = true;
        }
        free(there);
        if (!valid)
            return cli_usage(c,
                             "--places-at %" PRIu64 ": expected each of the "
                             "ranks 0 to %" PRIu32 " once",
                             x->step, n - 1);
    }
    return LH_OK;
}

/* Determines the initial layers of each chunk, from --layers or the plan, and
 * stores them in changes->first_layers; neither given: stays NULL. With a
 * second direction the plan's chunks have copies with the same layers. */
static lh_status find_layers(cli *c, const cli_view *v, const lh_plan *plan,
                             train_changes *changes)
{
    const train_settings *s = c->settings;
    uint32_t n = lh_pipeline_n_chunks(v->pipeline);
    bool numbered = s->layers || plan;
    if (s->layers && plan)
        return cli_usage(c, "--layers cannot be combined with a plan, which "
                            "contains its own");
    if (!numbered)
        return LH_OK;
    if (!(changes->first_layers = calloc(n, sizeof *changes->first_layers)))
        return cli_no_memory(c);
    if (s->layers && !cli_parse_numbers(s->layers, 1, n, changes->first_layers,
                                        &changes->n_layers))
        return cli_usage(c,
                         "--layers: '%s' is not a list of whole numbers of at "
                         "least 1, one for each of the %" PRIu32
                         " chunks, such as 8,8,8",
                         s->layers, n);
    bool all = true;
    const uint32_t planned = plan ? lh_pipeline_n_chunks(plan->pipeline) : n;
    for (uint32_t i = 0; plan && i < n; i++) {
        uint32_t first;
        lh_plan_layers(plan, i % planned, &first, &changes->first_layers[i]);
        changes->n_layers += changes->first_layers[i];
        all = all && changes->first_layers[i] > 0;
    }
    if (all)
        return LH_OK;
    free(changes->first_layers); /* no layer moves */
    changes->first_layers = NULL;
    return LH_OK;
}

/* Returns the rank count per pipeline stage: the product of data, context
 * and tensor degree. */
static uint32_t count_replicas(const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    return l->data * l->context * l->tensor;
}

lh_status train_migrations_read(cli *c, const cli_view *v, const lh_plan *plan,
                                train_changes *changes)
{
    const train_settings *s = c->settings;
    uint32_t devices = lh_pipeline_n_devices(v->pipeline);
    bool cpu = s->device == LH_TRAIN_CPU;
    CLI_TRY(read_list(c, "layers-at", s->layers_at, 1, &changes->layers));
    CLI_TRY(read_list(c, "places-at", s->places_at, 0, &changes->hosts));
    CLI_TRY(find_layers(c, v, plan, changes));
    if (s->layers_at && !changes->first_layers)
        return plan ? cli_usage(c, "--layers-at requires a layer in each chunk "
                                   "of the plan")
                    : cli_usage(c, "--layers-at requires --layers, or a plan");
    if (s->places_at && !cpu && !s->replicas)
        return cli_usage(c, "--places-at on the timed device requires "
                            "--replicas and --events");
    uint32_t copies = cpu           ? count_replicas(plan)
                      : s->replicas ? s->replicas
                                    : 1;
    CLI_TRY(check_layers(c, changes, lh_pipeline_n_chunks(v->pipeline)));
    CLI_TRY(check_places(c, changes, devices * copies));
    changes->transfer_vias =
        calloc((size_t)devices * copies, sizeof *changes->transfer_vias);
    if (!changes->transfer_vias)
        return cli_no_memory(c);
    changes->host_ns = s->moving_ns / s->speed;
    const bool adapts = s->adapt && s->moving_ns;
    if (adapts && !changes->first_layers && !s->replicas)
        return plan ? cli_usage(c, "--moving requires a layer in each chunk of "
                                   "the plan")
                    : cli_usage(c, "--moving with --adapt requires --layers or "
                                   "--replicas");
    if (!changes->first_layers || !(changes->layers.n || adapts))
        return LH_OK;
    changes->layer_ns = (int64_t)((double)changes->host_ns * devices /
                                      (double)changes->n_layers +
                                  0.5);
    return lh_layers_make(v->pipeline, changes->first_layers,
                          &changes->layer_rules, &c->err);
}

void train_migrations_fini(train_changes *changes)
{
    for (uint32_t i = 0; i < changes->layers.n; i++)
        free(changes->layers.all[i].numbers);
    for (uint32_t i = 0; i < changes->hosts.n; i++)
        free(changes->hosts.all[i].numbers);
    free(changes->layers.all);
    free(changes->hosts.all);
    free(changes->first_layers);
    free(changes->transfer_vias);
    lh_layers_free(changes->layer_rules);
    json_decref(changes->pending_migrations);
}

/* --- during the run ----------------------------------------------------- */

/* Returns the layers or ranks of the last migration due by `step` and records
 * it as proposed; NULL: it was proposed before, or none is due. */
static const uint32_t *get_next_numbers(train_migrations *moves, uint64_t step)
{
    uint32_t n = 0;
    while (n < moves->n && moves->all[n].step <= step)
        n++;
    if (n == moves->n_proposed)
        return NULL;
    moves->n_proposed = n;
    return moves->all[n - 1].numbers;
}

/* Returns the last applied migration's layers or ranks; NULL: the initial
 * ones. */
static const uint32_t *get_applied_numbers(const train_migrations *moves)
{
    return moves->n_applied ? moves->all[moves->n_applied - 1].numbers : NULL;
}

/* Sets in `to` how a layer or rank migration is transferred at that step:
 * duration over the links, and ranks that relay the data. Sets nothing without
 * a duration per rank (--moving). */
static void find_transfer(train_changes *changes, uint64_t step,
                          lh_reschedule *to)
{
    int64_t layers = 0, hosts = 0;
    const uint32_t *from = get_applied_numbers(&changes->layers);
    if (changes->host_ns == 0)
        return;
    if (to->layers && changes->layer_rules)
        lh_layers_migration_ns(changes->layer_rules,
                               from ? from : changes->first_layers, to->layers,
                               changes->layer_ns, &layers, NULL);
    if (to->hosts && changes->placement &&
        lh_event_timeline_migration(
            changes->event_timeline,
            lh_event_timeline_state(changes->event_timeline, step),
            get_applied_numbers(&changes->hosts), to->hosts,
            changes->transfer_vias, &hosts, NULL) == LH_OK)
        to->relay_ranks = changes->transfer_vias;
    to->move_ns = layers + hosts;
}

bool train_migrations_get(train_changes *changes, uint64_t step,
                          lh_reschedule *out)
{
    out->layers = get_next_numbers(&changes->layers, step);
    out->hosts = get_next_numbers(&changes->hosts, step);
    bool layers = out->layers != NULL, hosts = out->hosts != NULL;
    find_transfer(changes, step, out);
    snprintf(changes->why, sizeof changes->why, "%s%s%s",
             layers ? "--layers-at" : "", layers && hosts ? ", " : "",
             hosts ? "--places-at" : "");
    out->why = changes->why;
    return layers || hosts;
}

void train_migrations_mark_applied(train_changes *changes)
{
    if (changes->given.layers)
        changes->layers.n_applied = changes->layers.n_proposed;
    if (changes->given.hosts)
        changes->hosts.n_applied = changes->hosts.n_proposed;
}

/* --- results ------------------------------------------------------------ */

/* Converts n layers or ranks to a JSON list; LH_NONE becomes null. */
static json_t *make_numbers_json(const uint32_t *numbers, uint32_t n)
{
    json_t *list = n ? json_array() : json_null();
    for (uint32_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, numbers[i] == LH_NONE
                                            ? json_null()
                                            : json_integer(numbers[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Checks whether a layer or rank migration sends data through other ranks
 * (relays). */
static bool has_transfers(const lh_migration *m)
{
    for (uint32_t i = 0; m->relay_ranks && i < m->n_places; i++)
        if (m->relay_ranks[i] != LH_NONE)
            return true;
    return false;
}

json_t *train_migration_json(const lh_migration *m)
{
    if (!m)
        return json_null();
    return json_pack(
        "{s:o, s:o, s:o, s:I, s:o, s:o}", "layers",
        make_numbers_json(m->layers, m->n_chunks), "places",
        make_numbers_json(m->hosts, m->n_places), "vias",
        make_numbers_json(m->relay_ranks, has_transfers(m) ? m->n_places : 0),
        "bytes", (json_int_t)m->bytes, "seconds", cli_seconds(m->ns),
        "predicted_s",
        m->predicted_ns > 0 ? cli_seconds(m->predicted_ns) : json_null());
}

/* Formats n layers or ranks, "2,1,-"; LH_NONE becomes a dash. */
static const char *format_numbers(const uint32_t *numbers, uint32_t n,
                                  char *text, size_t room)
{
    size_t at = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < n && at < room; i++) {
        char number[16] = "-";
        if (numbers[i] != LH_NONE)
            snprintf(number, sizeof number, "%" PRIu32, numbers[i]);
        at += (size_t)snprintf(text + at, room - at, "%s%s", i ? "," : "",
                               number);
    }
    if (at >= room)
        memcpy(text + room - 4, "...", 4);
    return text;
}

void train_migration_print(cli *c, uint64_t step, const lh_migration *m)
{
    char layers[400], hosts[400], time[CLI_TIME_TEXT];
    format_numbers(m->layers, m->n_chunks, layers, sizeof layers);
    format_numbers(m->hosts, m->n_places, hosts, sizeof hosts);
    cli_wrap(c, "moved",
             "before iteration %" PRIu64 ", in %s, %" PRIu64
             " bytes: %s%s%s%s%s",
             step, cli_time_text(m->ns, time), m->bytes,
             m->n_chunks ? "layers per chunk " : "", layers,
             m->n_chunks && m->n_places ? "; rank per position "
             : m->n_places              ? "rank per position "
                                        : "",
             hosts,
             has_transfers(m) ? "; slow links were bypassed through other hosts"
                              : "");
}

lh_status train_migrations_report(cli *c, const lh_train_result *r,
                                  lh_report *report)
{
    static const char *const head[] = {"before iteration",
                                       "layers per chunk",
                                       "rank per position",
                                       "relayed by",
                                       "#bytes",
                                       "#predicted",
                                       "#measured",
                                       "why"};
    enum { COLUMNS = sizeof head / sizeof *head };
    char step[24], layers[200], hosts[200], vias[200], bytes[24];
    char predicted[CLI_TIME_TEXT], took[CLI_TIME_TEXT];
    uint32_t n;
    const lh_switch *rows = lh_train_switches(r, &n);
    cli_table t = {0};
    cli_table_row(&t, COLUMNS, head);
    for (uint32_t i = 0; i < n; i++) {
        const lh_migration *m = lh_train_migration(r, i);
        if (!m)
            continue;
        snprintf(step, sizeof step, "%" PRIu64, rows[i].step);
        snprintf(bytes, sizeof bytes, "%" PRIu64, m->bytes);
        const char *cells[] = {
            step,
            m->n_chunks
                ? format_numbers(m->layers, m->n_chunks, layers, sizeof layers)
                : "initial",
            m->n_places
                ? format_numbers(m->hosts, m->n_places, hosts, sizeof hosts)
                : "initial",
            has_transfers(m)
                ? format_numbers(m->relay_ranks, m->n_places, vias, sizeof vias)
                : "none",
            bytes,
            m->predicted_ns > 0 ? cli_time_text(m->predicted_ns, predicted)
                                : "-",
            cli_time_text(m->ns, took),
            rows[i].why};
        cli_table_row(&t, COLUMNS, cells);
    }
    return cli_table_report(c, "Migrations", &t, report);
}

/* Returns the last layer or rank migration at or before iteration `step`; NULL:
 * none. */
static const lh_migration *find_last_migration(const lh_train_result *r,
                                               uint64_t step)
{
    uint32_t n;
    const lh_migration *last = NULL;
    const lh_switch *rows = lh_train_switches(r, &n);
    for (uint32_t i = 0; i < n && rows[i].step <= step; i++)
        if (lh_train_migration(r, i))
            last = lh_train_migration(r, i);
    return last;
}

lh_status train_pipeline_at(cli *c, const train_changes *changes,
                            const lh_pipeline *quiet, const lh_train_result *r,
                            uint64_t step, uint32_t state, lh_pipeline **out)
{
    const lh_migration *moved = find_last_migration(r, step);
    lh_pipeline *now = NULL, *then = NULL;
    *out = NULL;
    if (changes->event_timeline)
        CLI_TRY(lh_event_timeline_pipeline_with_hosts(
            changes->event_timeline, state,
            moved && changes->placement ? moved->hosts : NULL, &now, &c->err));
    if (!moved || !moved->layers) {
        *out = now;
        return LH_OK;
    }
    lh_status status = lh_layers_pipeline(
        changes->layer_rules, now ? now : quiet, moved->layers, &then, &c->err);
    lh_pipeline_free(now);
    *out = then;
    return status;
}
