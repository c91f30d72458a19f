/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates as JSON: docs/formats/certificate.md. */
#include "proof/proof.h"

#include "base/text.h"
#include "doc/fields.h"
#include "pipe/file/pipe_file.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static bool set(json_t *map, const char *key, json_t *value)
{
    return json_object_set_new(map, key, value) == 0;
}

static bool add(json_t *list, json_t *value)
{
    return json_array_append_new(list, value) == 0;
}

static bool set_schedule(json_t *map, const lh_schedule *schedule)
{
    json_t *inner = json_object();
    json_t *rows = lhi_schedule_rows_to_json(schedule);
    json_t *links = lhi_schedule_links_to_json(schedule);
    bool ok = inner && rows && links;
    ok = set(inner, "rows", rows) && ok;
    if (json_is_null(links))
        json_decref(links);
    else
        ok = set(inner, "link_orders", links) && ok;
    return set(map, "schedule", inner) && ok;
}

static bool set_terms(json_t *map, const lh_certificate *c)
{
    json_t *list = json_array();
    bool ok = list;
    for (uint32_t i = 0; ok && i < c->n_terms; i++)
        ok = add(list, json_pack("{s:s, s:I, s:I}", "name", c->terms[i].name,
                                 "times", (json_int_t)c->terms[i].times, "ns",
                                 (json_int_t)c->terms[i].ns));
    if (!ok) {
        json_decref(list);
        return false;
    }
    return set(map, "terms", list);
}

static json_t *numbers(const int64_t *values, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        if (!add(list, json_integer(values[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static bool set_rows(json_t *map, const lh_certificate *c)
{
    json_t *list = json_array();
    bool ok = list;
    for (uint32_t i = 0; ok && i < c->n_rows; i++) {
        const lh_proof_row *r = &c->rows[i];
        char name[24];
        snprintf(name, sizeof name, "%s%" PRIu32 "%c", r->message ? "m" : "",
                 r->chunk, "FIWB"[r->kind & 3]);
        json_t *row = json_object();
        ok = row && set(row, "passes", json_string(name)) &&
             set(row, "start_ns", numbers(r->start_ns, r->n_passes)) &&
             set(row, "finish_ns", numbers(r->finish_ns, r->n_passes));
        if (ok)
            ok = add(list, row);
        else
            json_decref(row);
    }
    if (!ok) {
        json_decref(list);
        return false;
    }
    return set(map, "windows", list);
}

static json_t *clause_to_json(const lh_proof_clause *clause)
{
    lhi_text text = {0};
    char a[LH_PASS_TEXT], b[LH_PASS_TEXT];
    for (uint32_t i = 0; i < clause->n_orders; i++) {
        const lh_proof_order *o = &clause->orders[i];
        const char *mark = o->messages ? "m" : "";
        lhi_text_printf(&text, "%s%s%s<%s%s", i ? " " : "", mark,
                        lh_pass_text(&o->first, a), mark,
                        lh_pass_text(&o->second, b));
    }
    json_t *json =
        text.failed ? NULL : json_stringn(text.data ? text.data : "", text.len);
    lhi_text_fini(&text);
    return json;
}

static bool set_clauses(json_t *map, const lh_certificate *c)
{
    json_t *list = json_array();
    bool ok = list;
    for (uint32_t i = 0; ok && i < c->n_clauses; i++)
        ok = add(list, clause_to_json(&c->clauses[i]));
    if (!ok) {
        json_decref(list);
        return false;
    }
    return set(map, "clauses", list);
}

static bool set_where(json_t *map, const lh_certificate *c)
{
    if (c->device != LH_NONE)
        return set(map, "device", json_integer(c->device));
    return !c->link[0] || set(map, "link", json_string(c->link));
}

static bool fill_proof(json_t *map, const lh_certificate *c)
{
    if (!set(map, "kind", json_string(lh_proof_kind_name(c->kind))))
        return false;
    switch (c->kind) {
    case LH_PROOF_CLOSED_FORM:
        return set(map, "form", json_string(lh_bound_kind_name(c->form))) &&
               set_where(map, c) && set_terms(map, c);
    case LH_PROOF_WINDOWS:
        return set(map, "refuted_ns", json_integer(c->refuted_ns)) &&
               set_where(map, c) && set_rows(map, c);
    case LH_PROOF_SEARCH:
        return set(map, "refuted_ns", json_integer(c->refuted_ns)) &&
               set_clauses(map, c);
    default:
        return set(map, "why", json_string(c->why));
    }
}

static bool fill(json_t *map, const lh_certificate *c)
{
    bool ok = set(map, "longhaul", json_string("certificate/1")) &&
              set(map, "version", json_string(c->version)) &&
              set(map, "pipeline_hash", json_string(c->pipeline_hash)) &&
              set(map, "fifo", json_boolean(c->fifo)) &&
              set(map, "sub_blocks", json_integer(c->sub_blocks)) &&
              set(map, "makespan_ns", json_integer(c->makespan_ns)) &&
              set(map, "bound_ns", json_integer(c->bound_ns)) &&
              set_schedule(map, c->schedule);
    json_t *proof = json_object();
    ok = ok && proof && fill_proof(proof, c);
    return set(map, "proof", proof) && ok;
}

lh_status lh_certificate_format(const lh_certificate *certificate, char **text,
                                size_t *len, lh_error *err)
{
    json_t *map = json_object();
    if (map && !fill(map, certificate)) {
        json_decref(map);
        map = NULL;
    }
    return lhi_json_text(map, text, len, err);
}
