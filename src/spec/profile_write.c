/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical text of a profile. */
#include "spec/spec.h"

static bool set_text(json_t *map, const char *key, const char *text)
{
    return !text || lhi_json_set(map, key, json_string(text));
}

/* Left out where it has its usual value. */
static bool set_count(json_t *map, const char *key, int64_t count,
                      int64_t usual)
{
    return count == usual || lhi_json_set(map, key, json_integer(count));
}

static bool set_us(json_t *map, const char *key, int64_t ns)
{
    return lhi_json_set(map, key,
                        lhi_json_number(lhi_round15((double)ns / 1000)));
}

static json_t *entry_to_json(const lh_profile_entry *e)
{
    json_t *map = json_object();
    bool ok =
        map &&
        lhi_json_set(map, "kind", json_string(lhi_profile_kinds[e->kind])) &&
        (e->kind != LH_PROFILE_CHUNK ||
         (lhi_json_set(map, "chunk", json_integer(e->chunk)) &&
          lhi_json_set(map, "of", json_integer(e->of)) &&
          set_count(map, "layers", e->layers, 0))) &&
        set_text(map, "gpu", e->gpu) &&
        set_count(map, "tensor", e->tensor, 1) &&
        set_count(map, "context", e->context, 1) &&
        set_count(map, "expert", e->expert, 1) &&
        lhi_json_set(map, "micro_batch", json_integer(e->micro_batch)) &&
        lhi_json_set(map, "sequence", json_integer(e->sequence)) &&
        (e->recompute == LH_RECOMPUTE_NONE ||
         lhi_json_set(map, "recompute",
                      json_string(lhi_recompute_names[e->recompute]))) &&
        (!e->communication ||
         lhi_json_set(map, "communication", json_true())) &&
        set_us(map, "F_us", e->f_ns) && set_us(map, "D_us", e->d_ns) &&
        set_us(map, "W_us", e->w_ns) &&
        set_count(map, "activation_bytes", e->activation_bytes,
                  LH_NOT_MEASURED) &&
        set_count(map, "static_bytes", e->static_bytes, LH_NOT_MEASURED);
    return lhi_json_done(map, ok);
}

static json_t *link_to_json(const lh_profile_link *l)
{
    json_t *map = json_object();
    bool ok =
        map &&
        lhi_json_set(map, "path", json_string(lhi_profile_paths[l->path])) &&
        set_text(map, "site", l->site) && set_text(map, "from", l->from) &&
        set_text(map, "to", l->to) && set_us(map, "alpha_us", l->alpha_ns) &&
        lhi_json_set(map, "beta_ns_per_byte",
                     lhi_json_number(l->beta_ns_per_byte));
    return lhi_json_done(map, ok);
}

static bool write_entries(json_t *map, const lh_profile *profile)
{
    json_t *list = json_array();
    if (!lhi_json_set(map, "entries", list)) /* the map holds it from here on */
        return false;
    for (uint32_t i = 0; i < profile->n_entries; i++)
        if (json_array_append_new(list, entry_to_json(&profile->entries[i])))
            return false;
    return true;
}

static bool write_links(json_t *map, const lh_profile *profile)
{
    json_t *list = json_array();
    if (!lhi_json_set(map, "links", list))
        return false;
    for (uint32_t i = 0; i < profile->n_links; i++)
        if (json_array_append_new(list, link_to_json(&profile->links[i])))
            return false;
    return true;
}

json_t *lhi_profile_to_json(const lh_profile *profile)
{
    json_t *map = json_object();
    bool ok = map && lhi_json_set(map, "longhaul", json_string("profile/1")) &&
              set_text(map, "model", profile->model) &&
              set_text(map, "source", profile->source) &&
              write_entries(map, profile) && write_links(map, profile);
    return lhi_json_done(map, ok);
}

lh_status lh_profile_format(const lh_profile *profile, char **text, size_t *len,
                            lh_error *err)
{
    return lhi_json_text(lhi_profile_to_json(profile), text, len, err);
}
