/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates read back. What they claim is for lh_check_certificate(). */
#include "proof/proof.h"

#include "doc/doc.h"
#include "pipe/file/pipe_file.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const lhi_doc *doc;
    lhi_certificate *out;
} reader;

static lh_status need_int(const reader *r, const lhi_node *map, const char *key,
                          int64_t least, int64_t *out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    return lhi_get_int(r->doc, node, least, LHI_MAX_TIME_NS * 1024, out, err);
}

static lh_status need_text(const reader *r, const lhi_node *map,
                           const char *key, const char **out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    if (node->kind != LHI_SCALAR)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "must be a text");
    *out = lhi_arena_strdup(r->out->mem, node->text);
    return *out ? LH_OK : lhi_fail_nomem(err);
}

/* --- the schedule -------------------------------------------------------- */

static lh_status read_schedule(const reader *r, lh_error *err)
{
    static const char *const keys[] = {"rows", "link_orders", NULL};
    const lhi_node *map;
    LHI_TRY(lhi_need(r->doc, r->doc->root, "schedule", &map, err));
    LHI_TRY(lhi_want_map(r->doc, map, err));
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(lhi_schedule_from_map(r->doc, map, &r->out->schedule, err));
    r->out->c.schedule = r->out->schedule;
    return LH_OK;
}

/* --- passes by name ------------------------------------------------------ */

static bool read_number(const char **text, uint32_t *out)
{
    uint64_t value = 0;
    const char *p = *text;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        value = 10 * value + (uint64_t)(*p - '0');
        if (value >= LH_NONE)
            return false;
    }
    *text = p;
    *out = (uint32_t)value;
    return true;
}

/* "m0F" of messages or "0F" of passes. */
static bool read_kind(const char **text, bool *message, uint32_t *chunk,
                      uint8_t *kind)
{
    static const char kinds[] = "FIWB";
    *message = **text == 'm';
    *text += *message;
    if (!read_number(text, chunk) || !**text)
        return false;
    const char *at = strchr(kinds, **text);
    if (!at || (*message && *at == 'W'))
        return false;
    *kind = (uint8_t)(at - kinds);
    (*text)++;
    return true;
}

/* "0W3:2/8" */
static bool read_pass(const char **text, bool *message, lh_pass *out)
{
    uint32_t part, parts;
    *out = (lh_pass){.n_parts = 1};
    if (!read_kind(text, message, &out->chunk, &out->kind) ||
        !read_number(text, &out->microbatch))
        return false;
    if (**text != ':')
        return true;
    (*text)++;
    if (out->kind != LH_W || !read_number(text, &part) || *(*text)++ != '/' ||
        !read_number(text, &parts) || parts < 2 || parts > LH_MAX_PARTS ||
        part >= parts)
        return false;
    out->part = (uint16_t)part;
    out->n_parts = (uint16_t)parts;
    return true;
}

static bool read_order(const char **text, lh_proof_order *out)
{
    bool other;
    if (!read_pass(text, &out->messages, &out->first) || **text != '<')
        return false;
    (*text)++;
    return read_pass(text, &other, &out->second) && other == out->messages;
}

static lh_status read_clause(const reader *r, const lhi_node *node,
                             lh_proof_clause *out, lh_error *err)
{
    if (node->kind != LHI_SCALAR)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "must be a clause");
    const char *text = node->text;
    uint32_t room = 0;
    for (const char *p = text; *p; p++)
        room += *p == '<';
    lh_proof_order *orders = LHI_NEW(r->out->mem, lh_proof_order, room);
    if (!orders)
        return lhi_fail_nomem(err);
    out->orders = orders;
    while (*text) {
        if (out->n_orders == room ||
            !read_order(&text, &orders[out->n_orders]) ||
            (*text && *text != ' '))
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "order %u is not one such as 0F3<0W1",
                                out->n_orders + 1);
        out->n_orders++;
        text += *text == ' ';
    }
    return LH_OK;
}

/* --- the proof ----------------------------------------------------------- */

static lh_status read_where(const reader *r, const lhi_node *map, lh_error *err)
{
    const lhi_node *node = lhi_find(map, "device");
    if (node)
        LHI_TRY(lhi_get_u32(r->doc, node, 0, LH_MAX_DEVICES - 1,
                            &r->out->c.device, err));
    if (lhi_find(map, "link") && node)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "stands beside a link; give one of them");
    return lhi_find(map, "link")
               ? need_text(r, map, "link", &r->out->c.link, err)
               : LH_OK;
}

static lh_status read_terms(const reader *r, const lhi_node *map, lh_error *err)
{
    static const char *const keys[] = {"name", "times", "ns", NULL};
    lh_certificate *c = &r->out->c;
    const lhi_node *list;
    LHI_TRY(lhi_need(r->doc, map, "terms", &list, err));
    LHI_TRY(lhi_want_list(r->doc, list, err));
    lh_bound_term *terms = LHI_NEW(r->out->mem, lh_bound_term, list->n_items);
    if (!terms)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next) {
        lh_bound_term *t = &terms[node->index];
        LHI_TRY(lhi_want_map(r->doc, node, err));
        LHI_TRY(lhi_known_keys(r->doc, node, keys, err));
        LHI_TRY(need_text(r, node, "name", &t->name, err));
        LHI_TRY(need_int(r, node, "times", 0, &t->times, err));
        LHI_TRY(need_int(r, node, "ns", 0, &t->ns, err));
    }
    c->terms = terms;
    c->n_terms = list->n_items;
    return LH_OK;
}

static lh_status read_times(const reader *r, const lhi_node *map,
                            const char *key, const int64_t **out, uint32_t *n,
                            lh_error *err)
{
    const lhi_node *list;
    LHI_TRY(lhi_need(r->doc, map, key, &list, err));
    LHI_TRY(lhi_want_list(r->doc, list, err));
    int64_t *times = LHI_NEW(r->out->mem, int64_t, list->n_items);
    if (!times)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next)
        LHI_TRY(lhi_get_int(r->doc, node, INT64_MIN / 4, INT64_MAX / 4,
                            &times[node->index], err));
    *out = times;
    *n = list->n_items;
    return LH_OK;
}

static lh_status read_row(const reader *r, const lhi_node *map,
                          lh_proof_row *out, lh_error *err)
{
    static const char *const keys[] = {"passes", "start_ns", "finish_ns", NULL};
    const lhi_node *name;
    uint32_t n;
    LHI_TRY(lhi_want_map(r->doc, map, err));
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(lhi_need(r->doc, map, "passes", &name, err));
    const char *text = name->kind == LHI_SCALAR ? name->text : "";
    if (!read_kind(&text, &out->message, &out->chunk, &out->kind) || *text)
        return lhi_doc_fail(r->doc, name, err, LH_EINPUT,
                            "must be passes such as 0F, or messages such as "
                            "m0F");
    LHI_TRY(
        read_times(r, map, "start_ns", &out->start_ns, &out->n_passes, err));
    LHI_TRY(read_times(r, map, "finish_ns", &out->finish_ns, &n, err));
    if (n != out->n_passes)
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "has %u starts and %u finishes", out->n_passes, n);
    return LH_OK;
}

static lh_status read_windows(const reader *r, const lhi_node *map,
                              lh_error *err)
{
    lh_certificate *c = &r->out->c;
    const lhi_node *list;
    LHI_TRY(lhi_need(r->doc, map, "windows", &list, err));
    LHI_TRY(lhi_want_list(r->doc, list, err));
    lh_proof_row *rows = LHI_NEW(r->out->mem, lh_proof_row, list->n_items);
    if (!rows)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next)
        LHI_TRY(read_row(r, node, &rows[node->index], err));
    c->rows = rows;
    c->n_rows = list->n_items;
    return LH_OK;
}

static lh_status read_clauses(const reader *r, const lhi_node *map,
                              lh_error *err)
{
    lh_certificate *c = &r->out->c;
    const lhi_node *list;
    LHI_TRY(lhi_need(r->doc, map, "clauses", &list, err));
    LHI_TRY(lhi_want_list(r->doc, list, err));
    lh_proof_clause *clauses =
        LHI_NEW(r->out->mem, lh_proof_clause, list->n_items);
    if (!clauses)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next)
        LHI_TRY(read_clause(r, node, &clauses[node->index], err));
    c->clauses = clauses;
    c->n_clauses = list->n_items;
    return LH_OK;
}

static lh_status read_proof(const reader *r, lh_error *err)
{
    static const char *const keys[][8] = {
        {"kind", "form", "device", "link", "terms", NULL},
        {"kind", "refuted_ns", "device", "link", "windows", NULL},
        {"kind", "refuted_ns", "clauses", NULL},
        {"kind", "why", NULL},
    };
    lh_certificate *c = &r->out->c;
    const lhi_node *map, *node;
    uint32_t index;
    LHI_TRY(lhi_need(r->doc, r->doc->root, "proof", &map, err));
    LHI_TRY(lhi_want_map(r->doc, map, err));
    LHI_TRY(lhi_need(r->doc, map, "kind", &node, err));
    LHI_TRY(lhi_get_choice(r->doc, node, lhi_proof_kinds, &index, err));
    c->kind = (lh_proof_kind)index;
    LHI_TRY(lhi_known_keys(r->doc, map, keys[index], err));
    switch (c->kind) {
    case LH_PROOF_CLOSED_FORM:
        LHI_TRY(lhi_need(r->doc, map, "form", &node, err));
        LHI_TRY(lhi_get_choice(r->doc, node, lhi_bound_kinds, &index, err));
        c->form = (lh_bound_kind)index;
        LHI_TRY(read_where(r, map, err));
        return read_terms(r, map, err);
    case LH_PROOF_WINDOWS:
        LHI_TRY(need_int(r, map, "refuted_ns", 0, &c->refuted_ns, err));
        LHI_TRY(read_where(r, map, err));
        return read_windows(r, map, err);
    case LH_PROOF_SEARCH:
        LHI_TRY(need_int(r, map, "refuted_ns", 0, &c->refuted_ns, err));
        return read_clauses(r, map, err);
    default:
        return need_text(r, map, "why", &c->why, err);
    }
}

static lh_status read_all(const reader *r, lh_error *err)
{
    static const char *const keys[] = {
        "longhaul", "version",  "pipeline_hash", "fifo",  "sub_blocks",
        "bound_ns", "schedule", "makespan_ns",   "proof", NULL};
    const lhi_node *root = r->doc->root, *node;
    lh_certificate *c = &r->out->c;
    LHI_TRY(lhi_want_format(r->doc, "certificate", 1, err));
    LHI_TRY(lhi_known_keys(r->doc, root, keys, err));
    LHI_TRY(need_text(r, root, "version", &c->version, err));
    LHI_TRY(need_text(r, root, "pipeline_hash", &c->pipeline_hash, err));
    LHI_TRY(lhi_need(r->doc, root, "fifo", &node, err));
    LHI_TRY(lhi_get_bool(r->doc, node, &c->fifo, err));
    LHI_TRY(lhi_need(r->doc, root, "sub_blocks", &node, err));
    LHI_TRY(lhi_get_u32(r->doc, node, 1, LH_MAX_PARTS, &c->sub_blocks, err));
    LHI_TRY(need_int(r, root, "makespan_ns", 0, &c->makespan_ns, err));
    LHI_TRY(need_int(r, root, "bound_ns", 0, &c->bound_ns, err));
    LHI_TRY(read_schedule(r, err));
    return read_proof(r, err);
}

static lh_status from_doc(lhi_doc *doc, lh_certificate **out, lh_error *err)
{
    reader r = {doc, NULL};
    lh_status status = lhi_certificate_make(&r.out, err);
    if (status == LH_OK) {
        status = read_all(&r, err);
        if (status == LH_OK)
            *out = &r.out->c;
        else
            lh_certificate_free(&r.out->c);
    }
    lhi_doc_free(doc);
    return status;
}

lh_status lh_certificate_parse(const char *text, size_t len, const char *name,
                               lh_certificate **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, &doc, err));
    return from_doc(doc, out, err);
}

lh_status lh_certificate_read(const char *path, lh_certificate **out,
                              lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, &doc, err));
    return from_doc(doc, out, err);
}
