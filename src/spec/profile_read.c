/* SPDX-License-Identifier: Apache-2.0 */
/* From the text of a profile to its entries. */
#include "spec/spec.h"

#include <string.h>

const char *const lhi_profile_kinds[] = {"layer", "moe_layer", "embedding",
                                         "head",  "chunk",     NULL};
const char *const lhi_profile_paths[] = {"node", "fabric", "wan", NULL};

typedef struct reader {
    const lhi_doc *doc;
    lhi_arena *mem;
    const char *gpu; /* of the whole file, or NULL */
} reader;

/* A copy in the profile's memory; *out stays where the key is absent. */
static lh_status read_text(reader *r, const lhi_node *map, const char *key,
                           const char **out, lh_error *err)
{
    const lhi_node *node = lhi_find(map, key);
    const char *text;
    if (!node)
        return LH_OK;
    LHI_TRY(lhi_get_string(r->doc, node, &text, err));
    if (!(*out = lhi_arena_strdup(r->mem, text)))
        return lhi_fail_nomem(err);
    return LH_OK;
}

static lh_status read_count(reader *r, const lhi_node *map, const char *key,
                            uint32_t min, uint32_t max, uint32_t *out,
                            lh_error *err)
{
    const lhi_node *node = lhi_find(map, key);
    return node ? lhi_get_u32(r->doc, node, min, max, out, err) : LH_OK;
}

static lh_status read_time(reader *r, const lhi_node *map, const char *key,
                           int64_t *out_ns, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    return lhi_get_short_time(r->doc, node, 1000, out_ns, err);
}

static lh_status read_bytes(reader *r, const lhi_node *map, const char *key,
                            int64_t *out, lh_error *err)
{
    const lhi_node *node = lhi_find(map, key);
    *out = LH_NOT_MEASURED;
    return node ? lhi_get_int(r->doc, node, 0, INT64_C(1) << 50, out, err)
                : LH_OK;
}

static lh_status read_kind(reader *r, const lhi_node *map,
                           lh_profile_entry *entry, lh_error *err)
{
    const lhi_node *node, *chunk, *of;
    uint32_t kind;
    LHI_TRY(lhi_need(r->doc, map, "kind", &node, err));
    LHI_TRY(lhi_get_choice(r->doc, node, lhi_profile_kinds, &kind, err));
    entry->kind = (lh_profile_kind)kind;
    chunk = lhi_find(map, "chunk");
    of = lhi_find(map, "of");
    if (entry->kind != LH_PROFILE_CHUNK) {
        if (!chunk)
            chunk = of ? of : lhi_find(map, "layers");
        if (chunk)
            return lhi_doc_fail(r->doc, chunk, err, LH_EINPUT,
                                "belongs to entries of kind chunk only");
        return LH_OK;
    }
    LHI_TRY(lhi_need(r->doc, map, "of", &of, err));
    LHI_TRY(lhi_get_u32(r->doc, of, 1, LHI_MAX_ENTRIES, &entry->of, err));
    LHI_TRY(lhi_need(r->doc, map, "chunk", &chunk, err));
    LHI_TRY(lhi_get_u32(r->doc, chunk, 0, entry->of - 1, &entry->chunk, err));
    return read_count(r, map, "layers", 1, LHI_MAX_LAYERS, &entry->layers, err);
}

static lh_status read_entry(reader *r, const lhi_node *map,
                            lh_profile_entry *entry, lh_error *err)
{
    static const char *const keys[] = {
        "kind",         "gpu",         "tensor",   "context",
        "expert",       "micro_batch", "sequence", "recompute",
        "chunk",        "of",          "layers",   "communication",
        "F_us",         "D_us",        "W_us",     "activation_bytes",
        "static_bytes", NULL};
    const lhi_node *node;
    *entry = (lh_profile_entry){.gpu = r->gpu,
                                .tensor = 1,
                                .context = 1,
                                .expert = 1,
                                .micro_batch = 1};
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(read_kind(r, map, entry, err));
    LHI_TRY(read_text(r, map, "gpu", &entry->gpu, err));
    LHI_TRY(
        read_count(r, map, "tensor", 1, LHI_MAX_DEGREE, &entry->tensor, err));
    LHI_TRY(
        read_count(r, map, "context", 1, LHI_MAX_DEGREE, &entry->context, err));
    LHI_TRY(
        read_count(r, map, "expert", 1, LHI_MAX_DEGREE, &entry->expert, err));
    LHI_TRY(read_count(r, map, "micro_batch", 1, LHI_MAX_DEGREE,
                       &entry->micro_batch, err));
    LHI_TRY(lhi_need(r->doc, map, "sequence", &node, err));
    LHI_TRY(lhi_get_u32(r->doc, node, 1, LHI_MAX_VOCAB, &entry->sequence, err));
    if ((node = lhi_find(map, "recompute")))
        LHI_TRY(lhi_get_choice(r->doc, node, lhi_recompute_names,
                               &entry->recompute, err));
    if ((node = lhi_find(map, "communication")))
        LHI_TRY(lhi_get_bool(r->doc, node, &entry->communication, err));
    LHI_TRY(read_time(r, map, "F_us", &entry->f_ns, err));
    LHI_TRY(read_time(r, map, "D_us", &entry->d_ns, err));
    LHI_TRY(read_time(r, map, "W_us", &entry->w_ns, err));
    LHI_TRY(
        read_bytes(r, map, "activation_bytes", &entry->activation_bytes, err));
    return read_bytes(r, map, "static_bytes", &entry->static_bytes, err);
}

static bool same_gpu(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* All conditions but the GPU and which of the chunks it is. */
static bool same_conditions(const lh_profile_entry *a,
                            const lh_profile_entry *b)
{
    return a->kind == b->kind && a->tensor == b->tensor &&
           a->context == b->context && a->expert == b->expert &&
           a->micro_batch == b->micro_batch && a->sequence == b->sequence &&
           a->recompute == b->recompute && a->of == b->of;
}

/* Two entries for the same, or chunks of which some are missing, would leave
 * open what was meant. */
static lh_status check_entries(reader *r, const lhi_node *list,
                               const lh_profile_entry *entries, lh_error *err)
{
    for (const lhi_node *n = list->first; n; n = n->next) {
        const lh_profile_entry *e = &entries[n->index];
        uint32_t same = 0;
        for (uint32_t i = 0; i < list->n_items; i++) {
            const lh_profile_entry *other = &entries[i];
            if (!same_conditions(e, other) || !same_gpu(e->gpu, other->gpu))
                continue;
            same++;
            if (i < n->index && e->chunk == other->chunk)
                return lhi_doc_fail(r->doc, n, err, LH_EINPUT,
                                    "measured under the same conditions as "
                                    "entry %u; keep one",
                                    i);
        }
        if (e->kind == LH_PROFILE_CHUNK && same < e->of)
            return lhi_doc_fail(r->doc, n, err, LH_EINPUT,
                                "only %u of the %u chunks are there", same,
                                e->of);
    }
    return LH_OK;
}

static lh_status read_entries(reader *r, const lhi_node *list,
                              lh_profile *profile, lh_error *err)
{
    LHI_TRY(lhi_want_list(r->doc, list, err));
    if (list->n_items > LHI_MAX_ENTRIES)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "%u entries; at most %d are possible",
                            list->n_items, LHI_MAX_ENTRIES);
    lh_profile_entry *entries =
        LHI_NEW(r->mem, lh_profile_entry, list->n_items);
    if (!entries)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = list->first; n; n = n->next)
        LHI_TRY(read_entry(r, n, &entries[n->index], err));
    LHI_TRY(check_entries(r, list, entries, err));
    profile->entries = entries;
    profile->n_entries = list->n_items;
    return LH_OK;
}

static lh_status read_ends(reader *r, const lhi_node *map,
                           lh_profile_link *link, lh_error *err)
{
    const lhi_node *node;
    if (link->path == LH_PATH_WAN) {
        if ((node = lhi_find(map, "site")))
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "a wan path has 'from' and 'to' instead");
        LHI_TRY(lhi_need(r->doc, map, "from", &node, err));
        LHI_TRY(lhi_need(r->doc, map, "to", &node, err));
        LHI_TRY(read_text(r, map, "from", &link->from, err));
        return read_text(r, map, "to", &link->to, err);
    }
    if ((node = lhi_find(map, "from")) || (node = lhi_find(map, "to")))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "belongs to wan paths; name the 'site'");
    return read_text(r, map, "site", &link->site, err);
}

static lh_status read_link(reader *r, const lhi_node *map,
                           lh_profile_link *link, lh_error *err)
{
    static const char *const keys[] = {
        "path", "site", "from", "to", "alpha_us", "beta_ns_per_byte", NULL};
    const lhi_node *node;
    uint32_t path;
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(lhi_need(r->doc, map, "path", &node, err));
    LHI_TRY(lhi_get_choice(r->doc, node, lhi_profile_paths, &path, err));
    link->path = (lh_profile_path)path;
    LHI_TRY(read_ends(r, map, link, err));
    LHI_TRY(read_time(r, map, "alpha_us", &link->alpha_ns, err));
    LHI_TRY(lhi_need(r->doc, map, "beta_ns_per_byte", &node, err));
    return lhi_get_number15(r->doc, node, 0, 1e9, &link->beta_ns_per_byte, err);
}

static lh_status check_link(reader *r, const lhi_node *at,
                            const lh_profile_link *links, uint32_t n,
                            lh_error *err)
{
    const lh_profile_link *l = &links[n];
    for (uint32_t i = 0; i < n; i++)
        if (links[i].path == l->path && same_gpu(links[i].site, l->site) &&
            same_gpu(links[i].from, l->from) && same_gpu(links[i].to, l->to))
            return lhi_doc_fail(r->doc, at, err, LH_EINPUT,
                                "the same path as entry %u; keep one", i);
    return LH_OK;
}

static lh_status read_links(reader *r, const lhi_node *list,
                            lh_profile *profile, lh_error *err)
{
    LHI_TRY(lhi_want_list(r->doc, list, err));
    if (list->n_items > LHI_MAX_ENTRIES)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "%u links; at most %d are possible", list->n_items,
                            LHI_MAX_ENTRIES);
    lh_profile_link *links = LHI_NEW(r->mem, lh_profile_link, list->n_items);
    if (!links)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = list->first; n; n = n->next) {
        LHI_TRY(read_link(r, n, &links[n->index], err));
        LHI_TRY(check_link(r, n, links, n->index, err));
    }
    profile->links = links;
    profile->n_links = list->n_items;
    return LH_OK;
}

lh_status lhi_profile_from_node(const lhi_doc *doc, const lhi_node *map,
                                lhi_arena *mem, lh_profile *out, lh_error *err)
{
    static const char *const keys[] = {"longhaul", "model", "gpu", "source",
                                       "entries",  "links", NULL};
    const lhi_node *entries, *links;
    lh_profile profile = {0};
    reader r = {.doc = doc, .mem = mem};
    LHI_TRY(lhi_known_keys(doc, map, keys, err));
    LHI_TRY(lhi_want_format_of(doc, map, "profile", 1, err));
    LHI_TRY(read_text(&r, map, "model", &profile.model, err));
    LHI_TRY(read_text(&r, map, "gpu", &r.gpu, err));
    LHI_TRY(read_text(&r, map, "source", &profile.source, err));
    entries = lhi_find(map, "entries");
    links = lhi_find(map, "links");
    if (!entries && !links)
        return lhi_doc_fail(doc, map, err, LH_EINPUT,
                            "gives neither 'entries' nor 'links'");
    if (entries)
        LHI_TRY(read_entries(&r, entries, &profile, err));
    if (links)
        LHI_TRY(read_links(&r, links, &profile, err));
    if (!(profile.name = lhi_arena_strdup(mem, doc->file)))
        return lhi_fail_nomem(err);
    *out = profile;
    return LH_OK;
}

/* A profile that was read alone lives in one arena with itself. */
typedef struct held_profile {
    lh_profile profile; /* first: lh_profile_free() finds the rest by it */
    lhi_arena *mem;
} held_profile;

static lh_status from_doc(lhi_doc *doc, lh_profile **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    held_profile *held = mem ? LHI_NEW(mem, held_profile, 1) : NULL;
    lh_status status = LH_OK;
    if (!held)
        status = lhi_fail_nomem(err);
    if (status == LH_OK)
        status =
            lhi_profile_from_node(doc, doc->root, mem, &held->profile, err);
    lhi_doc_free(doc);
    if (status != LH_OK) {
        lhi_arena_free(mem);
        return status;
    }
    held->mem = mem;
    *out = &held->profile;
    return LH_OK;
}

lh_status lh_profile_parse(const char *text, size_t len, const char *name,
                           lh_profile **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, &doc, err));
    return from_doc(doc, out, err);
}

lh_status lh_profile_read(const char *path, lh_profile **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, &doc, err));
    return from_doc(doc, out, err);
}

void lh_profile_free(lh_profile *profile)
{
    if (profile)
        lhi_arena_free(((held_profile *)(void *)profile)->mem);
}

const lh_profile_entry *lh_profile_find(const lh_profile *profile,
                                        const lh_profile_entry *like)
{
    for (uint32_t i = 0; i < profile->n_entries; i++) {
        const lh_profile_entry *e = &profile->entries[i];
        if (!same_conditions(e, like) ||
            (e->kind == LH_PROFILE_CHUNK && e->chunk != like->chunk))
            continue;
        if (!e->gpu || !like->gpu || strcmp(e->gpu, like->gpu) == 0)
            return e;
    }
    return NULL;
}
