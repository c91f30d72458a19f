/* SPDX-License-Identifier: Apache-2.0 */
/* `cluster` in a job file: datacenters, their GPUs and networks, and the links
 * between them. */
#include "format/job/parse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The reader's state. */
typedef struct reader {
    const lhi_doc *doc;
    const lhi_node *map;
    lhi_arena *mem;
    lh_precision precision;
    lhi_listed_site *sites;
    lh_wan *wans; /* between the sites */
    bool *linked; /* indexed like wans: link already defined */
    bool zoned;   /* some datacenter has zones */
    uint32_t n_sites;
    double usd_per_gb; /* default price for links */
} reader;

/* Reads the required number `key` of a map, from `min` to `max`, into *out,
 * rounded to 15 digits. */
static lh_status read_number(const lhi_doc *doc, const lhi_node *map,
                             const char *key, double min, double max,
                             double *out, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_node_require(doc, map, key, &node, err));
    return lhi_node_get_rounded_number(doc, node, min, max, out, err);
}

/* Reads the optional number `key` of a map, from `min` to `max`, rounded to 15
 * digits; *out is unchanged if the key is absent. */
static lh_status read_optional(const lhi_doc *doc, const lhi_node *map,
                               const char *key, double min, double max,
                               double *out, lh_error *err)
{
    const lhi_node *node = lhi_node_find(map, key);
    return node ? lhi_node_get_rounded_number(doc, node, min, max, out, err)
                : LH_OK;
}

/* Lists the GPU presets' names, separated by commas and truncated to `size`. */
static void list_presets(char *text, size_t size)
{
    text[0] = '\0';
    for (const char *const *name = lh_gpu_presets(); *name; name++) {
        size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s", used ? ", " : "", *name);
    }
}

/* Reads a GPU preset by name. LH_EINPUT: it is unknown, or has no peak rate for
 * the job's precision and the map sets none (`has_peak`). */
static lh_status read_preset(reader *r, const lhi_node *node, bool has_peak,
                             lh_gpu *gpu, lh_error *err)
{
    const char *name;
    char known[256];
    LHI_TRY(lhi_node_get_string(r->doc, node, &name, err));
    const lh_gpu *preset = lh_gpu_preset(name);
    if (!preset) {
        list_presets(known, sizeof known);
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "unknown GPU '%.60s'; known: %s; or give a map of "
                            "tflops, memory_gib and memory_gbps",
                            name, known);
    }
    if (!has_peak && !lhi_gpu_preset_supports(name, r->precision))
        return lhi_doc_fail(
            r->doc, node, err, LH_EINPUT,
            "%s has no preset tflops for %s; write {preset: %s, tflops: ...}, "
            "or train in %s",
            name, lh_precision_name(r->precision), name,
            lhi_gpu_preset_supports(name, LH_PRECISION_BF16) ? "bf16" : "fp16");
    *gpu = *preset;
    return LH_OK;
}

/* Maximum fraction of the memory that can be reserved. */
#define MAX_RESERVE 0.9

/* Reads the part of a GPU's memory that plans leave free (the reserve): "6%" of
 * the memory, or a number of GiB. */
static lh_status read_reserve(const reader *r, const lhi_node *node,
                              lh_gpu *gpu, lh_error *err)
{
    const size_t len = node->kind == LHI_SCALAR ? strlen(node->text) : 0;
    const bool share = len > 1 && node->text[len - 1] == '%';
    lhi_node number = *node;
    if (share) {
        number.quoted = false;
        number.text = lhi_arena_strndup(r->mem, node->text, len - 1);
        if (!number.text)
            return lhi_fail_nomem(err);
    }
    gpu->reserve_percent = gpu->reserve_gib = 0;
    if (lhi_node_get_rounded_number(
            r->doc, &number, 0, MAX_RESERVE * (share ? 100 : gpu->memory_gib),
            share ? &gpu->reserve_percent : &gpu->reserve_gib, NULL) == LH_OK)
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "must be a share of the memory, such as 6%%, or GiB; "
                        "at most 90%% of the GPU's %g GiB",
                        gpu->memory_gib);
}

/* Reads the optional sustained rate `key` of a GPU in TFLOP/s into *out. It
 * cannot exceed `peak`, the peak rate, whose key is peak_key. */
static lh_status read_sustained(reader *r, const lhi_node *map, const char *key,
                                const char *peak_key, double peak, double *out,
                                lh_error *err)
{
    LHI_TRY(read_optional(r->doc, map, key, 1e-6, 1e6, out, err));
    if (*out > peak)
        return lhi_doc_fail(r->doc, lhi_node_find(map, key), err, LH_EINPUT,
                            "%g is above %s (%g); give the rate that large "
                            "products sustain",
                            *out, peak_key, peak);
    return LH_OK;
}

/* Reads a GPU given as a map: a preset's name with values that replace the
 * preset's, or all values. */
static lh_status read_gpu_map(reader *r, const lhi_node *map, lh_gpu *gpu,
                              lh_error *err)
{
    static const char *const keys[] = {"name",
                                       "preset",
                                       "tflops",
                                       "fp8_tflops",
                                       "sustained_tflops",
                                       "sustained_fp8_tflops",
                                       "memory_gib",
                                       "memory_gbps",
                                       "efficiency",
                                       "memory_reserve",
                                       NULL};
    const lhi_node *node;
    lh_gpu g = {.name = "custom"};
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, err));
    if ((node = lhi_node_find(map, "preset")))
        LHI_TRY(read_preset(r, node, lhi_node_find(map, "tflops"), &g, err));
    bool own = !node;
    if ((node = lhi_node_find(map, "name"))) {
        LHI_TRY(lhi_node_get_string(r->doc, node, &g.name, err));
        if (!own)
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "'name' and 'preset' cannot be combined; keep "
                                "one");
        if (!(g.name = lhi_arena_strdup(r->mem, g.name)))
            return lhi_fail_nomem(err);
    }
    lh_status (*read)(const lhi_doc *, const lhi_node *, const char *, double,
                      double, double *, lh_error *) =
        own ? read_number : read_optional;
    LHI_TRY(read(r->doc, map, "tflops", 1e-6, 1e6, &g.tflops, err));
    LHI_TRY(read_optional(r->doc, map, "fp8_tflops", 1e-6, 1e6, &g.fp8_tflops,
                          err));
    LHI_TRY(read_sustained(r, map, "sustained_tflops", "tflops", g.tflops,
                           &g.sustained_tflops, err));
    LHI_TRY(read_sustained(r, map, "sustained_fp8_tflops", "fp8_tflops",
                           g.fp8_tflops, &g.sustained_fp8_tflops, err));
    LHI_TRY(read(r->doc, map, "memory_gib", 1e-3, 1e6, &g.memory_gib, err));
    LHI_TRY(read(r->doc, map, "memory_gbps", 1e-3, 1e9, &g.memory_gbps, err));
    LHI_TRY(
        read_optional(r->doc, map, "efficiency", 1e-3, 1, &g.efficiency, err));
    g.flops_per_s = g.tflops * 1e12;
    g.memory_bytes = llround(g.memory_gib * 0x1p30);
    g.memory_bytes_per_s = g.memory_gbps * 1e9;
    *gpu = g;
    return LH_OK;
}

/* Reads a GPU: a preset's name or a map. */
static lh_status read_gpu(reader *r, const lhi_node *node, lh_gpu *gpu,
                          lh_error *err)
{
    if (node->kind == LHI_MAP)
        return read_gpu_map(r, node, gpu, err);
    if (node->kind != LHI_SCALAR)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "must be a preset's name or a map");
    return read_preset(r, node, false, gpu, err);
}

/* Reads a network: bandwidth, latency and, if it is shared, oversubscription.
 */
static lh_status read_network(const lhi_doc *doc, const lhi_node *map,
                              bool shared, lh_network *out, lh_error *err)
{
    const char *const keys[] = {"gbps", "latency_us",
                                shared ? "oversubscription" : NULL, NULL};
    const lhi_node *node;
    LHI_TRY(lhi_node_check_keys(doc, map, keys, err));
    LHI_TRY(read_number(doc, map, "gbps", 1e-6, 1e9, &out->gbps, err));
    LHI_TRY(read_optional(doc, map, "oversubscription", 1, 1e6,
                          &out->oversubscription, err));
    out->bytes_per_s = out->gbps * 1e9 / 8;
    if (out->oversubscription > 1)
        out->bytes_per_s /= out->oversubscription;
    LHI_TRY(lhi_node_require(doc, map, "latency_us", &node, err));
    return lhi_node_get_short_time(doc, node, 1000, &out->latency_ns, err);
}

/* Returns a key's value in a datacenter's map or, if it is absent there, in the
 * cluster's map; NULL: in neither. */
static const lhi_node *find_for_site(const reader *r, const lhi_node *site,
                                     const char *key)
{
    const lhi_node *node = lhi_node_find(site, key);
    return node ? node : lhi_node_find(r->map, key);
}

/* Finds a key's value in a datacenter's map or, if it is absent there, in the
 * cluster's map. LH_EINPUT: in neither. */
static lh_status require_for_site(const reader *r, const lhi_node *site,
                                  const char *key, const lhi_node **out,
                                  lh_error *err)
{
    *out = find_for_site(r, site, key);
    if (!*out)
        return lhi_doc_fail(r->doc, site, err, LH_EINPUT,
                            "key '%s' is required, here or in the cluster",
                            key);
    return LH_OK;
}

/* Reads a datacenter's node count, or its zones, and its GPUs per node. */
static lh_status read_nodes(reader *r, const lhi_node *map,
                            lhi_listed_site *listed, lh_error *err)
{
    lh_datacenter *site = &listed->site;
    const lhi_node *node;
    if (lhi_node_find(map, "zones")) {
        r->zoned = true;
        LHI_TRY(lhi_zones_from_node(r->doc, map, r->mem, listed, err));
    } else {
        LHI_TRY(lhi_node_require(r->doc, map, "nodes", &node, err));
        LHI_TRY(
            lhi_node_get_u32(r->doc, node, 1, LH_MAX_GPUS, &site->nodes, err));
    }
    LHI_TRY(require_for_site(r, map, "gpus_per_node", &node, err));
    LHI_TRY(lhi_node_get_u32(r->doc, node, 1, 1024, &site->gpus_per_node, err));
    if (site->nodes > LH_MAX_GPUS / site->gpus_per_node)
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "%u nodes of %u GPUs exceed the limit of %u GPUs",
                            site->nodes, site->gpus_per_node, LH_MAX_GPUS);
    site->gpus = site->nodes * site->gpus_per_node;
    return LH_OK;
}

/* Reads a datacenter, except for its networks. */
static lh_status read_site(reader *r, const lhi_node *map,
                           lhi_listed_site *listed, lh_error *err)
{
    static const char *const keys[] = {
        "name",           "nodes",  "zones",
        "zone_link",      "gpu",    "gpus_per_node",
        "node_link",      "fabric", "usd_per_gpu_hour",
        "memory_reserve", NULL};
    lh_datacenter *site = &listed->site;
    const lhi_node *node;
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, err));
    LHI_TRY(lhi_node_require(r->doc, map, "name", &node, err));
    LHI_TRY(lhi_node_get_string(r->doc, node, &site->name, err));
    LHI_TRY(lhi_check_site_name(r->doc, node, site->name, err));
    for (const lhi_listed_site *other = r->sites; other < listed; other++)
        if (strcmp(other->site.name, site->name) == 0)
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "datacenter '%s' appears twice", site->name);
    if (!(site->name = lhi_arena_strdup(r->mem, site->name)))
        return lhi_fail_nomem(err);
    LHI_TRY(read_nodes(r, map, listed, err));
    LHI_TRY(require_for_site(r, map, "gpu", &node, err));
    LHI_TRY(read_gpu(r, node, &site->gpu, err));
    /* In precedence order: the GPU's, the datacenter's, the cluster's, the
     * default. */
    const lhi_node *own =
        node->kind == LHI_MAP ? lhi_node_find(node, "memory_reserve") : NULL;
    site->gpu.reserve_percent = LH_MEMORY_RESERVE_PERCENT;
    if (own || (own = find_for_site(r, map, "memory_reserve")))
        LHI_TRY(read_reserve(r, own, &site->gpu, err));
    node = find_for_site(r, map, "usd_per_gpu_hour");
    if (!node)
        return LH_OK;
    return lhi_node_get_rounded_number(r->doc, node, 1e-6, LHI_MAX_PRICE,
                                       &site->usd_per_gpu_hour, err);
}

/* Reads the networks inside a datacenter, whose GPU, node and zone counts were
 * read before. */
static lh_status read_site_networks(reader *r, const lhi_node *map,
                                    uint32_t n_nodes, lhi_listed_site *listed,
                                    lh_error *err)
{
    lh_datacenter *site = &listed->site;
    const lhi_node *node = find_for_site(r, map, "node_link");
    if (!node && site->gpus_per_node > 1)
        LHI_TRY(require_for_site(r, map, "node_link", &node, err));
    if (node)
        LHI_TRY(read_network(r->doc, node, false, &site->node_link, err));
    node = find_for_site(r, map, "fabric");
    if (!node && n_nodes > 1)
        LHI_TRY(require_for_site(r, map, "fabric", &node, err));
    if (node)
        LHI_TRY(read_network(r->doc, node, true, &site->fabric, err));
    node = lhi_node_find(map, "zone_link");
    if (node && !listed->n_zones)
        return lhi_doc_fail(
            r->doc, node, err, LH_EINPUT,
            "has no zones to connect; set 'zones', or remove it");
    if (!listed->n_zones)
        return LH_OK;
    LHI_TRY(require_for_site(r, map, "zone_link", &node, err));
    return read_network(r->doc, node, true, &site->zone_link, err);
}

/* Checks that each network defined at cluster level applies to some datacenter.
 * Otherwise changing it would have no effect. */
static lh_status check_cluster_networks(const reader *r, const lhi_node *list,
                                        lh_error *err)
{
    static const char *const keys[] = {"node_link", "fabric", "zone_link"};
    const lhi_node *zone_link = lhi_node_find(r->map, "zone_link");

    if (zone_link && !r->zoned)
        return lhi_doc_fail(r->doc, zone_link, err, LH_EINPUT,
                            "no datacenter has zones to connect; set 'zones', "
                            "or remove it");
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const lhi_node *common = lhi_node_find(r->map, keys[k]);
        bool zones = strcmp(keys[k], "zone_link") == 0;
        bool used = !common;

        for (const lhi_node *n = list->first; n && !used; n = n->next)
            used = !lhi_node_find(n, keys[k]) &&
                   (!zones || lhi_node_find(n, "zones"));
        if (!used)
            return lhi_doc_fail(
                r->doc, common, err, LH_EINPUT,
                "every datacenter%s sets its own '%s', so this one has no "
                "effect; remove this one or theirs",
                zones ? " with zones" : "", keys[k]);
    }
    return LH_OK;
}

/* Reads all datacenters with their networks and sums up their GPUs and nodes.
 */
static lh_status read_sites(reader *r, const lhi_node *list, lh_job *job,
                            lh_error *err)
{
    LHI_TRY(lhi_node_check_list(r->doc, list, err));
    if (list->n_items == 0 || list->n_items > LH_MAX_DATACENTERS)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "%u datacenters; from 1 to %u are possible",
                            list->n_items, LH_MAX_DATACENTERS);
    r->n_sites = list->n_items;
    r->sites = LHI_NEW(r->mem, lhi_listed_site, r->n_sites);
    r->wans = LHI_NEW(r->mem, lh_wan, (size_t)r->n_sites * r->n_sites);
    r->linked = LHI_NEW(r->mem, bool, (size_t)r->n_sites * r->n_sites);
    if (!r->sites || !r->wans || !r->linked)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = list->first; n; n = n->next) {
        const lh_datacenter *site = &r->sites[n->index].site;
        LHI_TRY(read_site(r, n, &r->sites[n->index], err));
        if (site->gpus > LH_MAX_GPUS - job->n_gpus)
            return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                                "more than %u GPUs in all", LH_MAX_GPUS);
        job->n_gpus += site->gpus;
        job->n_nodes += site->nodes;
    }
    for (const lhi_node *n = list->first; n; n = n->next)
        LHI_TRY(
            read_site_networks(r, n, job->n_nodes, &r->sites[n->index], err));
    return check_cluster_networks(r, list, err);
}

/* Reads a datacenter's name and returns its index among the cluster's
 * datacenters in *out. LH_EINPUT: there is none of this name. */
static lh_status find_site(const reader *r, const lhi_node *node, uint32_t *out,
                           lh_error *err)
{
    const char *name;
    LHI_TRY(lhi_node_get_string(r->doc, node, &name, err));
    for (uint32_t i = 0; i < r->n_sites; i++)
        if (strcmp(r->sites[i].site.name, name) == 0) {
            *out = i;
            return LH_OK;
        }
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "unknown datacenter '%.60s'", name);
}

/* Reads a link's ends, as indices of datacenters: `between: [a, b]` (*both
 * directions) or `from: a` and `to: b` (one). */
static lh_status read_ends(reader *r, const lhi_node *map, uint32_t *from,
                           uint32_t *to, bool *both, lh_error *err)
{
    const lhi_node *a, *b;
    const lhi_node *between = lhi_node_find(map, "between");
    *both = between != NULL;
    if (between) {
        LHI_TRY(lhi_node_check_list(r->doc, between, err));
        if (between->n_items != 2)
            return lhi_doc_fail(r->doc, between, err, LH_EINPUT,
                                "names %u datacenters; name two",
                                between->n_items);
        if ((a = lhi_node_find(map, "from")) || (a = lhi_node_find(map, "to")))
            return lhi_doc_fail(r->doc, a, err, LH_EINPUT,
                                "'%s' and 'between' cannot be combined; keep "
                                "one",
                                a->key);
        a = between->first;
        b = a->next;
    } else {
        if (!lhi_node_find(map, "from") && !lhi_node_find(map, "to"))
            return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                                "key 'between' is required (or 'from' and "
                                "'to', for one direction)");
        LHI_TRY(lhi_node_require(r->doc, map, "from", &a, err));
        LHI_TRY(lhi_node_require(r->doc, map, "to", &b, err));
    }
    LHI_TRY(find_site(r, a, from, err));
    LHI_TRY(find_site(r, b, to, err));
    if (*from == *to)
        return lhi_doc_fail(r->doc, b, err, LH_EINPUT,
                            "a link requires two different datacenters");
    return LH_OK;
}

/* Stores the link from datacenter `from` to datacenter `to`. LH_EINPUT: it is
 * defined already. */
static lh_status add_link(reader *r, const lhi_node *map, uint32_t from,
                          uint32_t to, const lh_wan *wan, lh_error *err)
{
    size_t i = (size_t)from * r->n_sites + to;
    if (r->linked[i])
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "duplicate link from '%s' to '%s'; keep one",
                            r->sites[from].site.name, r->sites[to].site.name);
    r->linked[i] = true;
    r->wans[i] = *wan;
    return LH_OK;
}

static const lhi_schema_field link_rows[] = {
    /* by read_ends() */
    {"between", LHI_CUSTOM(lhi_job_link), .when = LHI_OPTIONAL},
    {"from", LHI_STRING(lhi_job_link, from), .least = 1, .when = LHI_OPTIONAL},
    {"to", LHI_STRING(lhi_job_link, to), .least = 1, .when = LHI_OPTIONAL},
    {"latency_ms", LHI_SHORT_TIME(lhi_job_link, wan.latency_ns), .scale = 1e6},
    {"gbps", LHI_NUMBER(lhi_job_link, wan.gbps), .low = 1e-6, .high = 1e9},
    {"loss", LHI_NUMBER(lhi_job_link, wan.loss), .high = 0.99,
     .when = LHI_DEFAULTED},
    {"oversubscription", LHI_NUMBER(lhi_job_link, wan.oversubscription),
     .low = 1, .high = 1e6, .when = LHI_DEFAULTED},
    {NULL, LHI_INLINED(lhi_job_link, wan.setting),
     .table = &lhi_link_setting_schema},
    {"usd_per_gb", LHI_NUMBER(lhi_job_link, wan.usd_per_gb),
     .high = LHI_MAX_PRICE, LHI_OMIT_IF(lhi_job_link, wan.usd_per_gb, 0)},
};

/* Sets a link's defaults before its keys are read: no oversubscription, and the
 * cluster's price. */
static void start_link(const lhi_read_context *r, void *it)
{
    lhi_job_link *link = it;
    link->wan.oversubscription = 1;
    link->wan.usd_per_gb = *(const double *)r->context;
}

/* Rejects `fec` on a link without packet loss, and derives the bandwidth in
 * bytes per second. */
static lh_status check_link(const lhi_read_context *r, const lhi_node *map,
                            void *it, lh_error *err)
{
    lh_wan *wan = &((lhi_job_link *)it)->wan;
    const lhi_node *fec = lhi_node_find(map, "fec");
    if (fec && !(wan->loss > 0))
        return lhi_doc_fail(r->doc, fec, err, LH_EINPUT,
                            "requires packet loss on this link; set its loss, "
                            "or remove fec");
    wan->bytes_per_s = wan->gbps * 1e9 / 8;
    return LH_OK;
}

const lhi_schema lhi_job_link_schema = {
    LHI_ROWS("link", lhi_job_link, link_rows), .start = start_link,
    .check = check_link};

/* Reads one entry of `links`, in one direction or both. */
static lh_status read_link(reader *r, const lhi_node *map, lh_error *err)
{
    const lhi_read_context reading = {
        .doc = r->doc, .mem = r->mem, .context = &r->usd_per_gb};
    lhi_job_link link = {0};
    uint32_t from, to;
    bool both;
    LHI_TRY(lhi_schema_read(&reading, map, &lhi_job_link_schema, &link, err));
    LHI_TRY(read_ends(r, map, &from, &to, &both, err));
    LHI_TRY(add_link(r, map, from, to, &link.wan, err));
    return both ? add_link(r, map, to, from, &link.wan, err) : LH_OK;
}

/* Reads `links` and checks that every pair of datacenters has one in each
 * direction. */
static lh_status read_links(reader *r, lh_error *err)
{
    const lhi_node *list = lhi_node_find(r->map, "links");
    if (list) {
        LHI_TRY(lhi_node_check_list(r->doc, list, err));
        for (const lhi_node *n = list->first; n; n = n->next)
            LHI_TRY(read_link(r, n, err));
    }
    for (uint32_t a = 0; a < r->n_sites; a++)
        for (uint32_t b = 0; b < r->n_sites; b++)
            if (a != b && !r->linked[(size_t)a * r->n_sites + b])
                return lhi_doc_fail(
                    r->doc, list ? list : r->map, err, LH_EINPUT,
                    "no link from '%s' to '%s'; every pair of datacenters "
                    "requires one",
                    r->sites[a].site.name, r->sites[b].site.name);
    return LH_OK;
}

/* Checks that either all datacenters have prices or none has. LH_EINPUT
 * otherwise, since costs need all prices. */
static lh_status check_prices(const reader *r, const lhi_node *list,
                              lh_error *err)
{
    const lh_datacenter *priced = NULL, *free = NULL;
    for (uint32_t i = 0; i < r->n_sites; i++)
        if (r->sites[i].site.usd_per_gpu_hour > 0)
            priced = &r->sites[i].site;
        else
            free = &r->sites[i].site;
    if (priced && free)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "'%s' has a usd_per_gpu_hour, but '%s' does not; "
                            "set both or neither",
                            priced->name, free->name);
    bool sent = r->usd_per_gb > 0;
    for (uint32_t i = 0; i < r->n_sites * r->n_sites; i++)
        sent = sent || r->wans[i].usd_per_gb > 0;
    if (sent && !priced)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "usd_per_gb requires usd_per_gpu_hour; set both or "
                            "neither");
    return LH_OK;
}

lh_status lhi_cluster_from_node(const lhi_doc *doc, const lhi_node *map,
                                lhi_arena *mem, lh_job *job, lh_error *err)
{
    static const char *const keys[] = {
        "gpu",        "gpus_per_node",  "node_link", "fabric",
        "zone_link",  "datacenters",    "links",     "usd_per_gpu_hour",
        "usd_per_gb", "memory_reserve", NULL};
    const lhi_node *list;
    reader r = {.doc = doc,
                .map = map,
                .mem = mem,
                .precision = job->training.precision};
    LHI_TRY(lhi_node_check_keys(doc, map, keys, err));
    LHI_TRY(lhi_node_require(doc, map, "datacenters", &list, err));
    LHI_TRY(read_optional(doc, map, "usd_per_gb", 0, LHI_MAX_PRICE,
                          &r.usd_per_gb, err));
    LHI_TRY(read_sites(&r, list, job, err));
    LHI_TRY(read_links(&r, err));
    LHI_TRY(check_prices(&r, list, err));
    return lhi_zones_split(doc, list, r.sites, r.n_sites, r.wans, mem, job,
                           err);
}
