/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes certificates as JSON: docs/formats/certificate.md. Checking
 * their claims is left to lh_check_certificate(). */
#include "schedule/certificate/certificate.h"
#include "schedule/pipeline/file/pipe_file.h"
#include "schedule/pipeline/schedule_internal.h"

#include <inttypes.h>
#include <string.h>

/* Maximum time in a certificate, about 146 years. */
#define MAX_NS (LHI_MAX_TIME_NS * 1024)

/* --- schedule ------------------------------------------------------------ */

/* Reads the schedule that the certificate embeds as CSV rows; a schema
 * callback. */
static lh_status read_schedule(const lhi_read_context *r, const lhi_node *node,
                               void *owner, lh_error *err)
{
    lhi_certificate *whole = owner;
    LHI_TRY(lhi_schedule_from_map(r->doc, node->parent, &whole->schedule, err));
    whole->c.schedule = whole->schedule;
    return LH_OK;
}

/* Writes the schedule as a list of CSV rows (schema callback); NULL: out of
 * memory. */
static json_t *write_rows(const void *owner, const void *context)
{
    (void)context;
    return lhi_schedule_rows_to_json(((const lh_certificate *)owner)->schedule);
}

/* Writes the explicit message orders as a list of CSV rows (schema callback);
 * NULL: out of memory. */
static json_t *write_link_orders(const void *owner, const void *context)
{
    const lh_certificate *c = owner;
    (void)context;
    return lhi_schedule_links_to_json(c->schedule);
}

static const lhi_schema_field schedule_rows[] = {
    {"rows", LHI_CUSTOM(lh_certificate), .read = read_schedule,
     .write = write_rows},
    {"link_orders", LHI_CUSTOM(lh_certificate), .write = write_link_orders,
     .when = LHI_OPTIONAL},
};
static const lhi_schema schedule_table = {
    LHI_ROWS("schedule", lh_certificate, schedule_rows)};

/* --- closed forms -------------------------------------------------------- */

/* Rejects a certificate whose bound names both a device and a link as the place
 * where it holds (schema callback). */
static lh_status check_bound_location(const lhi_read_context *r,
                                      const lhi_node *map, void *it,
                                      lh_error *err)
{
    const lhi_node *device = lhi_node_find(map, "device");
    (void)it;
    if (device && lhi_node_find(map, "link"))
        return lhi_doc_fail(r->doc, device, err, LH_EINPUT,
                            "cannot be combined with a link; give one of them");
    return LH_OK;
}

static const lhi_schema_field location_rows[] = {
    {"device", LHI_INTEGER(lh_certificate, device), .most = LH_MAX_DEVICES - 1,
     .when = LHI_OPTIONAL, .absent = LH_NONE},
    {"link", LHI_STRING(lh_certificate, link), .when = LHI_OPTIONAL},
};
static const lhi_schema location_table = {
    LHI_ROWS("place", lh_certificate, location_rows),
    .check = check_bound_location};

static const lhi_schema_field term_rows[] = {
    {"name", LHI_STRING(lh_bound_term, name)},
    {"times", LHI_INTEGER(lh_bound_term, times), .most = MAX_NS},
    {"ns", LHI_INTEGER(lh_bound_term, ns), .most = MAX_NS},
};
static const lhi_schema term_table = {
    LHI_ROWS("term", lh_bound_term, term_rows)};

/* --- windows ------------------------------------------------------------- */

/* Parses a time-window list's key: "m0F" for messages, "0F" for passes (schema
 * callback). */
static lh_status read_passes(const lhi_read_context *r, const lhi_node *node,
                             void *owner, lh_error *err)
{
    lh_proof_row *row = owner;
    const char *text = node->kind == LHI_SCALAR ? node->text : "";
    const char *end = text + strlen(text);
    row->message = *text == 'm';
    if (lhi_scan_pass_kind(text + row->message, end, &row->chunk, &row->kind) !=
            end ||
        (row->message && row->kind == LH_W))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "must be passes such as 0F, or messages such as "
                            "m0F");
    return LH_OK;
}

/* Writes a time-window list's passes, such as '0F', or 'm0F' for their messages
 * (schema callback). */
static json_t *write_passes(const void *owner, const void *context)
{
    const lh_proof_row *row = owner;
    (void)context;
    return json_sprintf("%s%" PRIu32 "%c", row->message ? "m" : "", row->chunk,
                        "FIWB"[row->kind & 3]);
}

/* Checks that a time-window list has one latest finish for each earliest start
 * (schema callback). */
static lh_status check_row(const lhi_read_context *r, const lhi_node *map,
                           void *it, lh_error *err)
{
    uint32_t starts = lhi_node_find(map, "start_ns")->n_items;
    uint32_t finishes = lhi_node_find(map, "finish_ns")->n_items;
    (void)it;
    if (starts != finishes)
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "has %u starts but %u finishes", starts, finishes);
    return LH_OK;
}

static const lhi_schema_field window_rows[] = {
    {"passes", LHI_CUSTOM(lh_proof_row), .read = read_passes,
     .write = write_passes},
    {"start_ns", LHI_LIST(lh_proof_row, start_ns, n_passes),
     .item_type = LHI_FIELD_INTEGER, .least = INT64_MIN / 4,
     .most = INT64_MAX / 4},
    {"finish_ns", LHI_LIST(lh_proof_row, finish_ns, n_passes),
     .item_type = LHI_FIELD_INTEGER, .least = INT64_MIN / 4,
     .most = INT64_MAX / 4},
};
static const lhi_schema window_table = {
    LHI_ROWS("window", lh_proof_row, window_rows), .check = check_row};

/* --- clauses ------------------------------------------------------------- */

/* Parses one precedence into *out: "0F3<0W1" for passes, "m0F2<m1I0" for
 * messages. Returns the parsed text's end, or NULL on error. */
static const char *scan_precedence(const char *at, const char *end,
                                   lh_proof_order *out)
{
    out->messages = *at == 'm';
    at = lhi_scan_pass(at + out->messages, end, &out->first, NULL);
    if (!at || *at != '<' || (at[1] == 'm') != out->messages)
        return NULL;
    at = lhi_scan_pass(at + 1 + out->messages, end, &out->second, NULL);
    bool weight = out->first.kind == LH_W || (at && out->second.kind == LH_W);
    return out->messages && weight ? NULL : at;
}

/* Parses one learned clause, a space-separated precedence list such as
 * "0F3<0W1" (schema callback). */
static lh_status read_clause(const lhi_read_context *r, const lhi_node *node,
                             void *owner, lh_error *err)
{
    lh_proof_clause *out = owner;
    if (node->kind != LHI_SCALAR)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "must be a clause");
    const char *at = node->text, *end = at + strlen(at);
    uint32_t room = 0;
    for (const char *p = at; *p; p++)
        room += *p == '<';
    lh_proof_order *orders = LHI_NEW(r->mem, lh_proof_order, room);
    if (!orders)
        return lhi_fail_nomem(err);
    out->orders = orders;
    while (at < end) {
        at = out->n_orders < room
                 ? scan_precedence(at, end, &orders[out->n_orders])
                 : NULL;
        if (!at || (*at && *at != ' '))
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "order %u is not one such as 0F3<0W1",
                                out->n_orders + 1);
        out->n_orders++;
        at += *at == ' ';
    }
    return LH_OK;
}

/* Writes a clause such as '0F3<0W1 m0F2<m1I0' (schema callback); NULL: out of
 * memory. */
static json_t *write_clause(const void *owner, const void *context)
{
    const lh_proof_clause *clause = owner;
    lhi_text text = {0};
    char a[LH_PASS_TEXT_SIZE], b[LH_PASS_TEXT_SIZE];
    (void)context;
    for (uint32_t i = 0; i < clause->n_orders; i++) {
        const lh_proof_order *o = &clause->orders[i];
        const char *mark = o->messages ? "m" : "";
        lhi_text_printf(&text, "%s%s%s<%s%s", i ? " " : "", mark,
                        lh_pass_format(&o->first, a), mark,
                        lh_pass_format(&o->second, b));
    }
    json_t *json =
        text.failed ? NULL : json_stringn(text.data ? text.data : "", text.len);
    lhi_text_fini(&text);
    return json;
}

/* --- proofs -------------------------------------------------------------- */

#define KIND_ROW                                                               \
    {                                                                          \
        "kind", LHI_ENUM(lh_certificate, kind), .names = lhi_proof_kinds       \
    }
#define REFUTED_ROW                                                            \
    {                                                                          \
        "refuted_ns", LHI_INTEGER(lh_certificate, refuted_ns), .most = MAX_NS  \
    }
#define LOCATION_ROW                                                           \
    {                                                                          \
        NULL, LHI_INLINED_TABLE(lh_certificate), .table = &location_table      \
    }

static const lhi_schema_field closed_form_rows[] = {
    KIND_ROW,
    {"form", LHI_ENUM(lh_certificate, form), .names = lhi_bound_kinds},
    LOCATION_ROW,
    {"terms", LHI_LIST(lh_certificate, terms, n_terms), .table = &term_table},
};
static const lhi_schema_field pass_kinds_rows[] = {
    KIND_ROW,
    REFUTED_ROW,
    {"device", LHI_INTEGER(lh_certificate, device), .most = LH_MAX_DEVICES - 1},
};
static const lhi_schema_field windows_rows[] = {
    KIND_ROW,
    REFUTED_ROW,
    LOCATION_ROW,
    {"windows", LHI_LIST(lh_certificate, rows, n_rows), .table = &window_table},
};
static const lhi_schema_field search_rows[] = {
    KIND_ROW,
    REFUTED_ROW,
    {"clauses", LHI_LIST(lh_certificate, clauses, n_clauses),
     .item_type = LHI_FIELD_CUSTOM, .read = read_clause, .write = write_clause},
};
static const lhi_schema_field none_rows[] = {
    KIND_ROW,
    {"why", LHI_STRING(lh_certificate, why)},
};
/* Indexed by lh_proof_kind. */
static const lhi_schema proof_tables[] = {
    {LHI_ROWS("closed form", lh_certificate, closed_form_rows)},
    {LHI_ROWS("refutation by pass kinds", lh_certificate, pass_kinds_rows)},
    {LHI_ROWS("refutation by windows", lh_certificate, windows_rows)},
    {LHI_ROWS("refutation by search", lh_certificate, search_rows)},
    {LHI_ROWS("missing record", lh_certificate, none_rows)},
};

/* Reads a proof with the schema that belongs to its `kind` (schema
 * callback). */
static lh_status read_proof(const lhi_read_context *r, const lhi_node *map,
                            void *owner, lh_error *err)
{
    const lhi_node *kind;
    uint32_t index;
    LHI_TRY(lhi_node_check_map(r->doc, map, err));
    LHI_TRY(lhi_node_require(r->doc, map, "kind", &kind, err));
    LHI_TRY(lhi_node_get_choice(r->doc, kind, lhi_proof_kinds, &index, err));
    return lhi_schema_read(r, map, &proof_tables[index], owner, err);
}

/* Writes a proof with its kind's schema (schema callback). */
static json_t *write_proof(const void *owner, const void *context)
{
    const lh_certificate *c = owner;
    lh_proof_kind kind = c->kind <= LH_PROOF_NONE ? c->kind : LH_PROOF_NONE;
    return lhi_schema_write(&proof_tables[kind], c, context);
}

/* All proof tables, for the key list in the documentation. */
static const lhi_schema_field any_proof_rows[] = {
    {NULL, LHI_INLINED_TABLE(lh_certificate), .table = &proof_tables[0]},
    {NULL, LHI_INLINED_TABLE(lh_certificate), .table = &proof_tables[1]},
    {NULL, LHI_INLINED_TABLE(lh_certificate), .table = &proof_tables[2]},
    {NULL, LHI_INLINED_TABLE(lh_certificate), .table = &proof_tables[3]},
    {NULL, LHI_INLINED_TABLE(lh_certificate), .table = &proof_tables[4]},
};
static const lhi_schema any_proof_table = {
    LHI_ROWS("proof", lh_certificate, any_proof_rows)};

/* --- certificate --------------------------------------------------------- */

static const lhi_schema_field certificate_rows[] = {
    {"longhaul", LHI_CUSTOM(lh_certificate), .description = "certificate/1"},
    {"version", LHI_STRING(lh_certificate, version)},
    {"pipeline_hash", LHI_STRING(lh_certificate, pipeline_hash)},
    {"fifo", LHI_BOOL(lh_certificate, fifo)},
    {"sub_blocks", LHI_INTEGER(lh_certificate, sub_blocks), .least = 1,
     .most = LH_MAX_PARTS},
    {"makespan_ns", LHI_INTEGER(lh_certificate, makespan_ns), .most = MAX_NS},
    {"bound_ns", LHI_INTEGER(lh_certificate, bound_ns), .most = MAX_NS},
    {"schedule", LHI_NESTED_MAP(lh_certificate), .table = &schedule_table},
    {"proof", LHI_CUSTOM(lh_certificate), .read = read_proof,
     .write = write_proof, .table = &any_proof_table},
};
const lhi_schema lhi_certificate_table = {
    LHI_ROWS("certificate", lh_certificate, certificate_rows)};

/* Reads all keys of a certificate from a parsed document into *whole. */
static lh_status read_certificate(const lhi_doc *doc, lhi_certificate *whole,
                                  lh_error *err)
{
    lhi_read_context r = {.doc = doc, .mem = whole->mem};
    LHI_TRY(lhi_doc_check_format(doc, "certificate", 1, err));
    return lhi_schema_read(&r, doc->root, &lhi_certificate_table, &whole->c,
                           err);
}

/* Builds a certificate from `doc`, and frees `doc` in any case. */
static lh_status build_from_document(lhi_doc *doc, lh_certificate **out,
                                     lh_error *err)
{
    lhi_certificate *whole;
    lh_status status = lhi_certificate_make(&whole, err);
    if (status == LH_OK) {
        status = read_certificate(doc, whole, err);
        if (status == LH_OK)
            *out = &whole->c;
        else
            lh_certificate_free(&whole->c);
    }
    lhi_doc_free(doc);
    return status;
}

lh_status lhi_certificate_parse(const char *text, size_t len, const char *name,
                                lh_certificate **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, LHI_INPUT_CERTIFICATE, &doc, err));
    return build_from_document(doc, out, err);
}

lh_status lh_certificate_read(const char *path, lh_certificate **out,
                              lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, LHI_INPUT_CERTIFICATE, &doc, err));
    return build_from_document(doc, out, err);
}

lh_status lh_certificate_format(const lh_certificate *certificate, char **text,
                                size_t *len, lh_error *err)
{
    return lhi_json_format(
        lhi_schema_write(&lhi_certificate_table, certificate, NULL), text, len,
        err);
}
