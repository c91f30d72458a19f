/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and formatting profiles. */
#include "format/job/parse.h"
#include "format/job/profile_lookup.h"

#include <string.h>

const char *const lhi_profile_kinds[] = {"layer", "moe_layer", "embedding",
                                         "head",  "chunk",     NULL};
const char *const lhi_profile_paths[] = {"node", "fabric", "wan", NULL};

/* File-level defaults for entries, or NULL. */
typedef struct profile_origin {
    const char *gpu;
} profile_origin;

/* --- entries -------------------------------------------------------------- */

/* Sets a profile entry's defaults before its keys are read: the file's GPU, and
 * one sequence per microbatch. */
static void start_entry(const lhi_read_context *r, void *it)
{
    lh_profile_entry *entry = it;
    entry->gpu = ((const profile_origin *)r->context)->gpu;
    entry->micro_batch = 1;
}

/* Reads the key `sequence_parallel`, of which only false is allowed, because
 * true is the default (schema callback). */
static lh_status read_sequence_parallel(const lhi_read_context *r,
                                        const lhi_node *node, void *owner,
                                        lh_error *err)
{
    bool is;
    LHI_TRY(lhi_node_get_bool(r->doc, node, &is, err));
    if (is)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "true is the same as no key, which applies to all "
                            "jobs; remove it");
    ((lh_profile_entry *)owner)->no_sequence_parallel = true;
    return LH_OK;
}

/* Writes the key `sequence_parallel`, which the struct stores as its negation
 * (schema callback). */
static json_t *write_sequence_parallel(const void *owner, const void *context)
{
    (void)context;
    return json_boolean(
        !((const lh_profile_entry *)owner)->no_sequence_parallel);
}

/* Replaces aliases in a profile entry by canonical names, and checks the keys
 * that depend on its kind. */
static lh_status check_entry(const lhi_read_context *r, const lhi_node *map,
                             void *it, lh_error *err)
{
    lh_profile_entry *entry = it;
    const lh_gpu *preset = entry->gpu ? lh_gpu_preset(entry->gpu) : NULL;
    if (preset) /* canonical name, as in a job, for any alias */
        entry->gpu = preset->name;
    const lh_model *model = entry->model ? lh_model_preset(entry->model) : NULL;
    if (model)
        entry->model = model->name;
    if (entry->no_sequence_parallel && entry->tensor == 1)
        return lhi_doc_fail(r->doc, lhi_node_find(map, "sequence_parallel"),
                            err, LH_EINPUT,
                            "is valid only in entries with tensor above 1; "
                            "remove it");
    const lhi_node *chunk = lhi_node_find(map, "chunk"),
                   *of = lhi_node_find(map, "of");
    if (entry->kind != LH_PROFILE_CHUNK) {
        if (!chunk)
            chunk = of ? of : lhi_node_find(map, "layers");
        if (chunk)
            return lhi_doc_fail(r->doc, chunk, err, LH_EINPUT,
                                "is valid only in entries of kind chunk");
        return LH_OK;
    }
    LHI_TRY(lhi_node_require(r->doc, map, "of", &of, err));
    LHI_TRY(lhi_node_require(r->doc, map, "chunk", &chunk, err));
    if (entry->chunk >= entry->n_chunks)
        return lhi_doc_fail(r->doc, chunk, err, LH_EINPUT,
                            "%u is out of range; from 0 to %u is possible",
                            entry->chunk, entry->n_chunks - 1);
    return LH_OK;
}

/* Maximum size of a profile entry's memory or communication, in bytes. */
#define MOST_BYTES (INT64_C(1) << 50)

static const lhi_schema_field entry_rows[] = {
    {"kind", LHI_ENUM(lh_profile_entry, kind), .names = lhi_profile_kinds},
    {"chunk", LHI_INTEGER(lh_profile_entry, chunk), .most = LHI_MAX_ENTRIES - 1,
     LHI_OMIT_IF(lh_profile_entry, n_chunks, 0)},
    {"of", LHI_INTEGER(lh_profile_entry, n_chunks), .least = 1,
     .most = LHI_MAX_ENTRIES, .when = LHI_OPTIONAL},
    {"layers", LHI_INTEGER(lh_profile_entry, layers), .least = 1,
     .most = LHI_MAX_LAYERS, .when = LHI_OPTIONAL},
    {"gpu", LHI_STRING(lh_profile_entry, gpu), .least = 1,
     LHI_OMIT_IF(lh_profile_entry, gpu, 0)},
    {"model", LHI_STRING(lh_profile_entry, model), .least = 1,
     .when = LHI_OPTIONAL},
    {"tensor", LHI_INTEGER(lh_profile_entry, tensor), .least = 1,
     .most = LHI_MAX_DEGREE, .when = LHI_OPTIONAL, .absent = 1},
    {"context", LHI_INTEGER(lh_profile_entry, context), .least = 1,
     .most = LHI_MAX_DEGREE, .when = LHI_OPTIONAL, .absent = 1},
    {"expert", LHI_INTEGER(lh_profile_entry, expert), .least = 1,
     .most = LHI_MAX_DEGREE, .when = LHI_OPTIONAL, .absent = 1},
    {"micro_batch", LHI_INTEGER(lh_profile_entry, micro_batch), .least = 1,
     .most = LHI_MAX_DEGREE, .when = LHI_DEFAULTED},
    {"sequence", LHI_INTEGER(lh_profile_entry, sequence), .least = 1,
     .most = LHI_MAX_VOCAB},
    {"recompute", LHI_ENUM(lh_profile_entry, recompute),
     .names = lhi_recompute_names, .when = LHI_OPTIONAL,
     .absent = LH_RECOMPUTE_NONE},
    {"communication", LHI_BOOL(lh_profile_entry, communication),
     .when = LHI_OPTIONAL},
    {"sequence_parallel", LHI_CUSTOM(lh_profile_entry),
     .read = read_sequence_parallel, .write = write_sequence_parallel,
     LHI_OMIT_IF(lh_profile_entry, no_sequence_parallel, 0)},
    {"F_us", LHI_SHORT_TIME(lh_profile_entry, f_ns), .scale = 1e3},
    {"D_us", LHI_SHORT_TIME(lh_profile_entry, d_ns), .scale = 1e3},
    {"W_us", LHI_SHORT_TIME(lh_profile_entry, w_ns), .scale = 1e3},
    {"activation_bytes", LHI_INTEGER(lh_profile_entry, activation_bytes),
     .most = MOST_BYTES, .when = LHI_OPTIONAL, .absent = LH_NOT_MEASURED},
    {"static_bytes", LHI_INTEGER(lh_profile_entry, static_bytes),
     .most = MOST_BYTES, .when = LHI_OPTIONAL, .absent = LH_NOT_MEASURED},
};
static const lhi_schema entry_table = {
    LHI_ROWS("entry", lh_profile_entry, entry_rows), .start = start_entry,
    .check = check_entry};

/* Checks whether two texts are equal; NULL equals only NULL. */
static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Checks whether two profile entries were measured under equal conditions
 * (kind, degrees, sizes, recomputation); ignores GPU, model and chunk index. */
static bool have_same_conditions(const lh_profile_entry *a,
                                 const lh_profile_entry *b)
{
    return a->kind == b->kind && a->tensor == b->tensor &&
           a->context == b->context && a->expert == b->expert &&
           a->micro_batch == b->micro_batch && a->sequence == b->sequence &&
           a->no_sequence_parallel == b->no_sequence_parallel &&
           a->recompute == b->recompute && a->n_chunks == b->n_chunks;
}

/* Checks that profile entries are unambiguous. LH_EINPUT: two have equal
 * conditions, or a set of chunks is incomplete. */
static lh_status check_entries(const lhi_read_context *r, const lhi_node *list,
                               const lh_profile_entry *entries, lh_error *err)
{
    for (const lhi_node *n = list->first; n; n = n->next) {
        const lh_profile_entry *e = &entries[n->index];
        uint32_t same = 0;
        for (uint32_t i = 0; i < list->n_items; i++) {
            const lh_profile_entry *other = &entries[i];
            if (!have_same_conditions(e, other) ||
                !is_same_text(e->gpu, other->gpu) ||
                !is_same_text(e->model, other->model))
                continue;
            same++;
            if (i < n->index && e->chunk == other->chunk)
                return lhi_doc_fail(r->doc, n, err, LH_EINPUT,
                                    "has the same conditions as entry %u; keep "
                                    "one",
                                    i);
        }
        if (e->kind == LH_PROFILE_CHUNK && same < e->n_chunks)
            return lhi_doc_fail(r->doc, n, err, LH_EINPUT,
                                "only %u of the %u chunks are present", same,
                                e->n_chunks);
    }
    return LH_OK;
}

/* --- links ---------------------------------------------------------------- */

/* Checks a measured path's keys: `from` and `to` between datacenters, `site`
 * inside one. */
static lh_status check_ends(const lhi_read_context *r, const lhi_node *map,
                            void *it, lh_error *err)
{
    const lh_profile_link *link = it;
    const lhi_node *node;
    if (link->path == LH_PATH_WAN) {
        if ((node = lhi_node_find(map, "site")))
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "a wan path requires 'from' and 'to' instead");
        LHI_TRY(lhi_node_require(r->doc, map, "from", &node, err));
        return lhi_node_require(r->doc, map, "to", &node, err);
    }
    if ((node = lhi_node_find(map, "from")) ||
        (node = lhi_node_find(map, "to")))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "is valid only in wan paths; use 'site'");
    return LH_OK;
}

static const lhi_schema_field link_rows[] = {
    {"path", LHI_ENUM(lh_profile_link, path), .names = lhi_profile_paths},
    {"site", LHI_STRING(lh_profile_link, site), .least = 1,
     .when = LHI_OPTIONAL},
    {"from", LHI_STRING(lh_profile_link, from), .least = 1,
     .when = LHI_OPTIONAL},
    {"to", LHI_STRING(lh_profile_link, to), .least = 1, .when = LHI_OPTIONAL},
    {"alpha_us", LHI_SHORT_TIME(lh_profile_link, alpha_ns), .scale = 1e3},
    {"beta_ns_per_byte", LHI_NUMBER(lh_profile_link, beta_ns_per_byte),
     .high = 1e9},
};
static const lhi_schema link_table = {
    LHI_ROWS("link", lh_profile_link, link_rows), .check = check_ends};

/* Fails with LH_EINPUT if two profile links measure the same path. */
static lh_status check_links(const lhi_read_context *r, const lhi_node *list,
                             const lh_profile_link *links, lh_error *err)
{
    for (const lhi_node *node = list->first; node; node = node->next) {
        const lh_profile_link *l = &links[node->index];
        for (uint32_t i = 0; i < node->index; i++)
            if (links[i].path == l->path &&
                is_same_text(links[i].site, l->site) &&
                is_same_text(links[i].from, l->from) &&
                is_same_text(links[i].to, l->to))
                return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                    "duplicates the path of entry %u; keep one",
                                    i);
    }
    return LH_OK;
}

/* --- profile -------------------------------------------------------------- */

/* Reads the profile's default GPU into the read context; entries without a GPU
 * use it. */
static lh_status read_gpu(const lhi_read_context *r, const lhi_node *node,
                          void *owner, lh_error *err)
{
    profile_origin *origin = r->context;
    const char *name;
    (void)owner;
    LHI_TRY(lhi_node_get_string(r->doc, node, &name, err));
    origin->gpu = lhi_arena_strdup(r->mem, name);
    return origin->gpu ? LH_OK : lhi_fail_nomem(err);
}

/* Checks that a profile has entries or links, without duplicates. */
static lh_status check_profile(const lhi_read_context *r, const lhi_node *map,
                               void *it, lh_error *err)
{
    const lh_profile *profile = it;
    const lhi_node *entries = lhi_node_find(map, "entries");
    const lhi_node *links = lhi_node_find(map, "links");
    if (!entries && !links)
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "requires 'entries' or 'links'");
    if (entries)
        LHI_TRY(check_entries(r, entries, profile->entries, err));
    return links ? check_links(r, links, profile->links, err) : LH_OK;
}

static const lhi_schema_field profile_rows[] = {
    {"longhaul", LHI_DERIVED(lh_profile), .description = "profile/1"},
    {"model", LHI_STRING(lh_profile, model), .least = 1, .when = LHI_OPTIONAL},
    /* written with each entry */
    {"gpu", LHI_CUSTOM(lh_profile), .read = read_gpu, .when = LHI_OPTIONAL},
    {"source", LHI_STRING(lh_profile, source), .least = 1,
     .when = LHI_OPTIONAL},
    {"iteration_us", LHI_SHORT_TIME(lh_profile, iteration_ns), .scale = 1e3,
     .when = LHI_OPTIONAL},
    {"entries", LHI_LIST(lh_profile, entries, n_entries), .table = &entry_table,
     .max_items = LHI_MAX_ENTRIES, .when = LHI_DEFAULTED},
    {"links", LHI_LIST(lh_profile, links, n_links), .table = &link_table,
     .max_items = LHI_MAX_ENTRIES, .when = LHI_DEFAULTED},
};
const lhi_schema lhi_profile_schema = {
    LHI_ROWS("profile", lh_profile, profile_rows), .check = check_profile};

lh_status lhi_profile_from_node(const lhi_doc *doc, const lhi_node *map,
                                lhi_arena *mem, lh_profile *out, lh_error *err)
{
    lh_profile profile = {0};
    profile_origin origin = {NULL};
    const lhi_read_context r = {.doc = doc, .mem = mem, .context = &origin};
    LHI_TRY(lhi_node_check_map(doc, map, err));
    LHI_TRY(lhi_node_check_format(doc, map, "profile", 1, err));
    LHI_TRY(lhi_schema_read(&r, map, &lhi_profile_schema, &profile, err));
    if (!(profile.name = lhi_arena_strdup(mem, doc->file)))
        return lhi_fail_nomem(err);
    *out = profile;
    return LH_OK;
}

json_t *lhi_profile_to_json(const lh_profile *profile)
{
    return lhi_schema_write(&lhi_profile_schema, profile, NULL);
}

lh_status lh_profile_format(const lh_profile *profile, char **text, size_t *len,
                            lh_error *err)
{
    return lhi_json_format(lhi_profile_to_json(profile), text, len, err);
}

/* Reads a parsed profile into *value; callback for lhi_value_parse(). */
static lh_status fill_profile(const lhi_doc *doc, lhi_arena *mem, void *value,
                              lh_error *err)
{
    return lhi_profile_from_node(doc, doc->root, mem, value, err);
}

lh_status lh_profile_parse(const char *text, size_t len, const char *name,
                           lh_profile **out, lh_error *err)
{
    void *profile;
    LHI_TRY(lhi_value_parse(text, len, name, LHI_INPUT_PROFILE,
                            sizeof(lh_profile), fill_profile, &profile, err));
    *out = profile;
    return LH_OK;
}

lh_status lh_profile_read(const char *path, lh_profile **out, lh_error *err)
{
    void *profile;
    LHI_TRY(lhi_value_read(path, LHI_INPUT_PROFILE, sizeof(lh_profile),
                           fill_profile, &profile, err));
    *out = profile;
    return LH_OK;
}

void lh_profile_free(lh_profile *profile)
{
    lhi_value_free(profile);
}

bool lhi_profile_entry_matches(const lh_profile_entry *e,
                               const lh_profile_entry *like)
{
    return (!e->gpu || !like->gpu || strcmp(e->gpu, like->gpu) == 0) &&
           (!e->model || !like->model || strcmp(e->model, like->model) == 0);
}

const lh_profile_entry *lhi_profile_find(const lh_profile *profile,
                                         const lh_profile_entry *like)
{
    for (uint32_t i = 0; i < profile->n_entries; i++) {
        const lh_profile_entry *e = &profile->entries[i];
        if (have_same_conditions(e, like) &&
            lhi_profile_entry_matches(e, like) &&
            (e->kind != LH_PROFILE_CHUNK || e->chunk == like->chunk))
            return e;
    }
    return NULL;
}
