/* SPDX-License-Identifier: Apache-2.0 */
/* Zones of datacenters: buildings, halls or pods connected by a slower network.
 * After parsing, each zone is its own datacenter with short links to its
 * neighbours. */
#include "format/job/parse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

lh_status lhi_check_site_name(const lhi_doc *doc, const lhi_node *node,
                              const char *name, lh_error *err)
{
    size_t len = strlen(name);
    bool bad = len == 0 || name[0] == ' ' || name[len - 1] == ' ';
    for (const char *at = name; *at; at++) {
        unsigned char c = (unsigned char)*at;
        bad = bad || c < ' ' || c == 0x7f || strchr(",\"'>", *at);
    }
    if (bad)
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "must not be empty, hold commas, quotes, '>' or "
                            "control characters, or have blanks around it");
    if (len > 60)
        return lhi_doc_fail(doc, node, err, LH_EINPUT, "exceeds 60 bytes");
    return LH_OK;
}

/* Reads the zone with index `at` of a datacenter: its full name, "site/zone",
 * and its node count. */
static lh_status read_zone(const lhi_doc *doc, const lhi_node *map,
                           lhi_arena *mem, lhi_listed_site *s, uint32_t at,
                           lh_error *err)
{
    static const char *const keys[] = {"name", "nodes", NULL};
    const lhi_node *node;
    const char *name;
    char whole[128];

    LHI_TRY(lhi_node_check_keys(doc, map, keys, err));
    LHI_TRY(lhi_node_require(doc, map, "name", &node, err));
    LHI_TRY(lhi_node_get_string(doc, node, &name, err));
    LHI_TRY(lhi_check_site_name(doc, node, name, err));
    snprintf(whole, sizeof whole, "%.60s/%.60s", s->site.name, name);
    LHI_TRY(lhi_check_site_name(doc, node, whole, err));
    for (uint32_t i = 0; i < at; i++)
        if (strcmp(s->names[i], whole) == 0)
            return lhi_doc_fail(doc, node, err, LH_EINPUT,
                                "zone '%.60s' appears twice", name);
    s->names[at] = lhi_arena_strdup(mem, whole);
    if (!s->names[at])
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_node_require(doc, map, "nodes", &node, err));
    return lhi_node_get_u32(doc, node, 1, LH_MAX_GPUS, &s->nodes[at], err);
}

lh_status lhi_zones_from_node(const lhi_doc *doc, const lhi_node *map,
                              lhi_arena *mem, lhi_listed_site *out,
                              lh_error *err)
{
    const lhi_node *list = lhi_node_find(map, "zones");
    const lhi_node *node = lhi_node_find(map, "nodes");
    uint64_t sum = 0;

    LHI_TRY(lhi_node_check_list(doc, list, err));
    if (list->n_items < 2 || list->n_items > LH_MAX_DATACENTERS)
        return lhi_doc_fail(doc, list, err, LH_EINPUT,
                            "%u zones; name from 2 to %u, or remove the key",
                            list->n_items, LH_MAX_DATACENTERS);
    out->n_zones = list->n_items;
    out->names = LHI_NEW(mem, const char *, out->n_zones);
    out->nodes = LHI_NEW(mem, uint32_t, out->n_zones);
    if (!out->names || !out->nodes)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = list->first; n; n = n->next) {
        LHI_TRY(read_zone(doc, n, mem, out, n->index, err));
        sum += out->nodes[n->index];
    }
    if (sum > LH_MAX_GPUS)
        return lhi_doc_fail(doc, list, err, LH_EINPUT,
                            "more than %u nodes in all zones", LH_MAX_GPUS);
    out->site.nodes = (uint32_t)sum;
    if (!node)
        return LH_OK;
    LHI_TRY(lhi_node_get_u32(doc, node, 1, LH_MAX_GPUS, &out->site.nodes, err));
    if (out->site.nodes != sum)
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "%u nodes, but the zones have %u in total; remove "
                            "the key",
                            out->site.nodes, (unsigned)sum);
    return LH_OK;
}

/* ---- splitting datacenters into zones ---- */

/* Returns the zone count; 1 for a datacenter without zones. */
static uint32_t count_zones(const lhi_listed_site *s)
{
    return s->n_zones ? s->n_zones : 1;
}

/* Returns zone `i` of a datacenter as its own datacenter. */
static lh_datacenter make_zone(const lhi_listed_site *s, uint32_t i)
{
    lh_datacenter zone = s->site;

    if (!s->n_zones)
        return zone;
    zone.zone_of = s->site.name;
    zone.name = s->names[i];
    zone.nodes = s->nodes[i];
    zone.gpus = zone.nodes * zone.gpus_per_node;
    return zone;
}

/* Returns the link from zone `from` to zone `to` of a datacenter, at the
 * combined rate of all GPUs in the smaller zone. */
static lh_wan build_zone_link(const lh_datacenter *from,
                              const lh_datacenter *to)
{
    uint32_t gpus = from->gpus < to->gpus ? from->gpus : to->gpus;
    const lh_network *net = &from->zone_link;

    return (lh_wan){.gbps = net->gbps * gpus,
                    .bytes_per_s = net->gbps * gpus * 1e9 / 8,
                    .latency_ns = net->latency_ns,
                    .oversubscription = fmax(1, net->oversubscription)};
}

/* Fails with LH_EINPUT if a zone has a datacenter's name without zones. */
static lh_status check_names(const lhi_doc *doc, const lhi_node *at,
                             const lh_datacenter *dcs, uint32_t n,
                             lh_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(dcs[i].name, dcs[k].name) == 0)
                return lhi_doc_fail(doc, at, err, LH_EINPUT,
                                    "'%s' is the name of both a datacenter and "
                                    "a zone",
                                    dcs[i].name);
    return LH_OK;
}

lh_status lhi_zones_split(const lhi_doc *doc, const lhi_node *at,
                          const lhi_listed_site *listed, uint32_t n,
                          const lh_wan *wans, lhi_arena *mem, lh_job *job,
                          lh_error *err)
{
    uint32_t all = 0, *site;
    lh_datacenter *dcs;
    lh_wan *links;

    for (uint32_t i = 0; i < n; i++)
        all += count_zones(&listed[i]);
    if (all > LH_MAX_DATACENTERS)
        return lhi_doc_fail(doc, at, err, LH_EINPUT,
                            "%u zones and datacenters without zones; at most "
                            "%u are allowed",
                            all, LH_MAX_DATACENTERS);
    dcs = LHI_NEW(mem, lh_datacenter, all);
    links = LHI_NEW(mem, lh_wan, (size_t)all * all);
    site = LHI_NEW(mem, uint32_t, all);
    if (!dcs || !links || !site)
        return lhi_fail_nomem(err);
    all = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < count_zones(&listed[i]); k++) {
            dcs[all] = make_zone(&listed[i], k);
            site[all++] = i;
        }
    LHI_TRY(check_names(doc, at, dcs, all, err));
    for (uint32_t a = 0; a < all; a++)
        for (uint32_t b = 0; b < all; b++)
            if (a != b)
                links[(size_t)a * all + b] =
                    site[a] == site[b] ? build_zone_link(&dcs[a], &dcs[b])
                                       : wans[(size_t)site[a] * n + site[b]];
    job->n_datacenters = all;
    job->datacenters = dcs;
    job->wans = links;
    return LH_OK;
}
