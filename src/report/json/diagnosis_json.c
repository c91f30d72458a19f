/* SPDX-License-Identifier: Apache-2.0 */
/* JSON output for `longhaul diagnose`. */
#include "format/document/schema.h"
#include "report/json/json_parts.h"

#include <longhaul/experimental/json_output.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Builds a JSON number in seconds from a time in ns. */
static json_t *make_seconds_json(double ns)
{
    return json_real(ns / 1e9);
}

/* Builds a JSON object with n values whose keys are `numbers` (NULL: 0 to n -
 * 1). */
static json_t *map_json(const double *values, const uint32_t *numbers,
                        uint32_t n)
{
    json_t *map = json_object();
    for (uint32_t i = 0; map && i < n; i++) {
        char key[16];
        snprintf(key, sizeof key, "%" PRIu32, numbers ? numbers[i] : i);
        map =
            lhi_json_finish(map, lhi_json_set(map, key, json_real(values[i])));
    }
    return map;
}

/* Builds the object with slowdowns by operation kind, for the kinds that occur.
 */
static json_t *make_operations_json(const lh_diagnosis *d)
{
    json_t *map = json_object();
    for (uint32_t i = 0; map && i < LH_N_OPERATIONS; i++)
        if (d->by_operation[i] > 0)
            map = lhi_json_finish(
                map, lhi_json_set(map, lh_operation_name((lh_operation)i),
                                  json_real(d->by_operation[i])));
    return map;
}

/* Builds the step list with measured, replayed and ideal times. */
static json_t *make_steps_json(const lh_diagnosis *d)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < d->n_steps; i++)
        list = lhi_json_append(
            list, json_pack("{s:I, s:o, s:o, s:o}", "step",
                            (json_int_t)d->steps[i].step, "measured_s",
                            lhi_json_seconds(d->steps[i].measured_ns), "t_s",
                            lhi_json_seconds(d->steps[i].t_ns), "ideal_s",
                            lhi_json_seconds(d->steps[i].ideal_ns)));
    return list;
}

/* Builds the JSON list of stragglers (slow workers, stages and links), with
 * cost and affected steps of each. */
static json_t *make_slow_json(const lh_diagnosis *d)
{
    static const char *const names[] = {[LH_SLOW_WORKER] = "worker",
                                        [LH_SLOW_STAGE] = "stage",
                                        [LH_SLOW_LINK] = "link",
                                        [LH_SLOW_MICROBATCHES] =
                                            "microbatches"};
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < d->n_slow_components; i++) {
        const lh_slow_component *t = &d->slow_components[i];
        json_t *j = json_pack(
            "{s:s, s:f, s:I, s:I, s:I, s:b, s:o, s:b}", "what", names[t->kind],
            "ratio", t->ratio, "steps", (json_int_t)t->n_steps, "from",
            (json_int_t)t->first_step, "until", (json_int_t)t->last_step,
            "to_the_end", t->is_ongoing, "cost_s", lhi_json_seconds(t->cost_ns),
            "hidden", t->hidden);
        bool ok = j != NULL;
        if (ok && t->stage != LH_NONE)
            ok = lhi_json_set(j, "stage", json_integer(t->stage));
        if (ok && t->kind == LH_SLOW_LINK)
            ok = lhi_json_set(j, "to", json_integer(t->to_stage));
        if (ok && t->replica != LH_NONE)
            ok = lhi_json_set(j, "replica",
                              json_integer(d->replicas[t->replica]));
        list = lhi_json_append(list, lhi_json_finish(j, ok));
    }
    return list;
}

/* Lists recommendations in JSON, with assumptions and predicted gain of
 * each. */
static json_t *make_remedies_json(const lh_diagnosis *d)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < d->n_remedies; i++)
        list = lhi_json_append(
            list,
            json_pack("{s:s, s:s, s:o, s:f}", "what", d->remedies[i].action,
                      "assumes", d->remedies[i].assumptions, "predicted_s",
                      lhi_json_seconds(d->remedies[i].predicted_ns), "gain",
                      d->remedies[i].gain));
    return list;
}

/* Builds a JSON string from a text that may contain any bytes, such as file
 * names, with unprintable ones escaped. */
static json_t *make_escaped_string(const char *text)
{
    char shown[1024];
    lh_text_escape(text, strlen(text), shown, sizeof shown);
    return json_string(shown);
}

/* Lists the recording's defects in JSON: for each kind of defect the occurrence
 * count, and the description of the first one. */
static json_t *defects_json(const lh_diagnosis *d)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < d->n_defects; i++)
        list = lhi_json_append(
            list, json_pack("{s:s, s:I, s:o}", "kind", d->defects[i].kind, "n",
                            (json_int_t)d->defects[i].n, "text",
                            make_escaped_string(d->defects[i].text)));
    return list;
}

/* Builds the JSON list of the slowest workers (stages of replicas) with their
 * slowdown. */
static json_t *workers_json(const lh_diagnosis *d)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < d->n_slow_workers; i++) {
        uint32_t w = d->slow_workers[i], R = d->n_replicas;
        list = lhi_json_append(list, json_pack("{s:I, s:I, s:f}", "stage",
                                               (json_int_t)(w / R), "replica",
                                               (json_int_t)d->replicas[w % R],
                                               "slowdown", d->by_worker[w]));
    }
    return list;
}

/* Lists the ranks' activities in JSON: times per step and the ratio to the
 * other ranks. */
static json_t *ranks_json(const lh_diagnosis *d)
{
    static const char *const sources[] = {
#define LH_ACTIVITY_ROW(name, text) [LH_ACTIVITY_##name] = (text),
        LH_ACTIVITY_LIST(LH_ACTIVITY_ROW)
#undef LH_ACTIVITY_ROW
    };
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < d->n_ranks; i++) {
        const lh_rank_activity *r = &d->ranks[i];
        json_t *j = json_pack(
            "{s:o, s:o, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:b}",
            "rank", r->rank == LH_NONE ? json_null() : json_integer(r->rank),
            "file", make_escaped_string(r->file), "n_steps",
            (json_int_t)r->n_steps, "source", sources[r->source], "span_s",
            lhi_json_seconds(r->span_ns), "compute_s",
            lhi_json_seconds(r->compute_ns), "communication_s",
            lhi_json_seconds(r->communication_ns), "overlap_s",
            lhi_json_seconds(r->overlap_ns), "copy_s",
            lhi_json_seconds(r->copy_ns), "idle_s",
            lhi_json_seconds(r->idle_ns), "ratio", r->ratio, "slow",
            r->is_slow);
        list = lhi_json_append(list, j);
    }
    return list;
}

json_t *lhi_json_diagnosis(const lh_diagnosis *d)
{
    json_t *j = json_pack(
        "{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:f, s:f}", "n_steps",
        (json_int_t)d->n_steps, "stages", (json_int_t)d->n_stages, "replicas",
        (json_int_t)d->n_replicas, "microbatches",
        (json_int_t)d->n_microbatches, "measured_s",
        make_seconds_json(d->measured_ns), "t_s", make_seconds_json(d->t_ns),
        "ideal_s", make_seconds_json(d->ideal_ns), "slowdown", d->slowdown,
        "slowdown_error", d->slowdown_error);
    bool ok =
        j &&
        lhi_json_set(j, "by_stage", map_json(d->by_stage, NULL, d->n_stages)) &&
        lhi_json_set(j, "by_replica",
                     map_json(d->by_replica, d->replicas, d->n_replicas)) &&
        lhi_json_set(j, "by_operation", make_operations_json(d)) &&
        lhi_json_set(j, "worker_share", json_real(d->worker_share)) &&
        lhi_json_set(j, "last_stage_share", json_real(d->last_stage_share)) &&
        lhi_json_set(j, "slowest_workers", workers_json(d)) &&
        lhi_json_set(j, "slow", make_slow_json(d)) &&
        lhi_json_set(j, "helps", make_remedies_json(d)) &&
        lhi_json_set(j, "steps", make_steps_json(d)) &&
        lhi_json_set(j, "remarks", defects_json(d)) &&
        lhi_json_set(j, "ranks", ranks_json(d)) &&
        lhi_json_set(j, "unreplayed",
                     d->unreplayed ? make_escaped_string(d->unreplayed)
                                   : json_null());
    return lhi_json_finish(j, ok);
}

lh_status lh_diagnosis_format(const lh_diagnosis *d, char **text, size_t *len,
                              lh_error *err)
{
    return lhi_json_format_indented(lhi_json_diagnosis(d), 2, text, len, err);
}
