/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical text of a pipeline. */
#include "pipe/file/pipe_file.h"

#include "doc/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* jansson's setters fail, and give back what they were given, on NULL; so
 * one check at the end of each function covers all that went before. */
static json_t *chunk_to_json(const lh_chunk *c)
{
    json_t *memory =
        json_pack("{s:I, s:I, s:I, s:I}", "F", c->mem_f, "D", c->mem_d, "W",
                  c->mem_w, "static", c->mem_static);
    return json_pack("{s:I, s:I, s:I, s:I, s:o}", "device",
                     (json_int_t)c->device, "F", c->f_ns, "D", c->d_ns, "W",
                     c->w_ns, "memory", memory);
}

static json_t *link_to_json(const lh_link *l)
{
    char plain[32];
    json_t *link =
        json_pack("{s:I, s:I, s:I, s:I}", "from", (json_int_t)l->from, "to",
                  (json_int_t)l->to, "latency", l->latency_ns, "transfer",
                  l->transfer_ns);
    snprintf(plain, sizeof plain, "%u-%u", l->from, l->to);
    if (link && strcmp(plain, l->name) != 0 &&
        json_object_set_new(link, "name", json_string(l->name)) != 0) {
        json_decref(link);
        return NULL;
    }
    return link;
}

static bool append(json_t *list, json_t *item)
{
    return json_array_append_new(list, item) == 0; /* false on a NULL item */
}

static bool set(json_t *map, const char *key, json_t *value)
{
    return json_object_set_new(map, key, value) == 0;
}

static json_t *chunks_to_json(const lh_pipeline *p)
{
    json_t *list = json_array();
    for (uint32_t c = 0; list && c < p->n_chunks; c++)
        if (!append(list, chunk_to_json(&p->chunks[c]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *links_to_json(const lh_pipeline *p)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < p->n_links; i++)
        if (!append(list, link_to_json(&p->links[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* A site without devices is written too. */
static json_t *sites_to_json(const lh_pipeline *p)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < p->n_sites; i++)
        if (!append(list, json_pack("{s:s, s:[]}", "name", p->sites[i].name,
                                    "devices"))) {
            json_decref(list);
            return NULL;
        }
    for (uint32_t d = 0; list && p->n_sites && d < p->n_devices; d++) {
        json_t *site = json_array_get(list, p->device_sites[d]);
        if (!append(json_object_get(site, "devices"), json_integer(d))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *limits_to_json(const lh_pipeline *p)
{
    json_t *list = json_array();
    for (uint32_t d = 0; list && d < p->n_devices; d++)
        if (!append(list, json_integer(p->memory_limits[d]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static bool fill(const lh_pipeline *p, json_t *map)
{
    return set(map, "longhaul", json_string("pipeline/1")) &&
           set(map, "time_unit", json_string("ns")) &&
           set(map, "microbatches", json_integer(p->n_microbatches)) &&
           set(map, "devices", json_integer(p->n_devices)) &&
           set(map, "backward", json_string(p->joint ? "joint" : "split")) &&
           set(map, "chunks", chunks_to_json(p)) &&
           set(map, "links", links_to_json(p)) &&
           (!p->n_sites || set(map, "sites", sites_to_json(p))) &&
           (!p->has_limits || set(map, "memory_limit", limits_to_json(p))) &&
           (!p->memory_unit[0] ||
            set(map, "memory_unit", json_string(p->memory_unit))) &&
           lhi_dp_to_json(p, map);
}

lh_status lhi_pipeline_to_json(const lh_pipeline *pipeline, json_t **out,
                               lh_error *err)
{
    json_t *map = json_object();
    if (!map || !fill(pipeline, map)) {
        json_decref(map);
        return lhi_fail_nomem(err);
    }
    *out = map;
    return LH_OK;
}

lh_status lh_pipeline_format(const lh_pipeline *pipeline, char **text,
                             size_t *len, lh_error *err)
{
    json_t *map;
    LHI_TRY(lhi_pipeline_to_json(pipeline, &map, err));
    return lhi_json_text(map, text, len, err);
}
