/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "inject.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct injection {
    char *name;                      /* in the copied text */
    int64_t latency_ns, transfer_ns; /* -1: as it is */
} injection;

static bool take_time(const char *text, int64_t *ns)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}};
    double value;
    const char *unit;
    if (!cli_parse_real(text, &value, &unit))
        return false;
    if (value == 0 && *unit == '\0') {
        *ns = 0;
        return true;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].name) == 0 && value * units[i].ns < 1e15) {
            *ns = llround(value * units[i].ns);
            return true;
        }
    return false;
}

static lh_status take_value(cli *c, const char *pair, uint64_t message_bytes,
                            injection *out)
{
    double gbps;
    const char *rest;
    if (strncmp(pair, "latency:", 8) == 0 &&
        take_time(pair + 8, &out->latency_ns))
        return LH_OK;
    if (strncmp(pair, "transfer:", 9) == 0 &&
        take_time(pair + 9, &out->transfer_ns))
        return LH_OK;
    if (strncmp(pair, "gbps:", 5) == 0 &&
        cli_parse_real(pair + 5, &gbps, &rest) && *rest == '\0' && gbps > 0) {
        double ns = (double)message_bytes * 8 / gbps;
        if (ns < 1e15) {
            out->transfer_ns = llround(ns);
            return LH_OK;
        }
    }
    return cli_usage(c,
                     "--inject: '%.60s' must be latency:TIME, transfer:TIME "
                     "or gbps:NUMBER, with times such as 20ms",
                     pair);
}

static lh_status take_one(cli *c, char *text, uint64_t message_bytes,
                          injection *out)
{
    char *is = strchr(text, '='), *more = NULL;
    if (!is || is == text)
        return cli_usage(c, "--inject: '%.60s' must be LINK=latency:...", text);
    *is = '\0';
    *out = (injection){text, -1, -1};
    for (char *pair = strtok_r(is + 1, ",", &more); pair;
         pair = strtok_r(NULL, ",", &more))
        CLI_TRY(take_value(c, pair, message_bytes, out));
    if (out->latency_ns < 0 && out->transfer_ns < 0)
        return cli_usage(c, "--inject: nothing is said of link '%.60s'", text);
    return LH_OK;
}

/* "2-3", both the numbers of devices. */
static bool names_devices(const char *name, uint32_t n, lh_link *out)
{
    char *end, *rest;
    if (*name < '0' || *name > '9')
        return false;
    unsigned long from = strtoul(name, &end, 10);
    if (*end != '-' || end[1] < '0' || end[1] > '9')
        return false;
    unsigned long to = strtoul(end + 1, &rest, 10);
    if (*rest || from >= n || to >= n || from == to)
        return false;
    *out = (lh_link){.from = (uint32_t)from, .to = (uint32_t)to};
    return true;
}

static lh_status inject_one(cli *c, const injection *what, uint32_t n_devices,
                            lh_link *links, uint32_t *n_links)
{
    bool found = false;
    lh_link added;
    for (uint32_t i = 0; i < *n_links; i++) {
        if (strcmp(links[i].name, what->name) != 0)
            continue;
        found = true;
        if (what->latency_ns >= 0)
            links[i].latency_ns = what->latency_ns;
        if (what->transfer_ns >= 0)
            links[i].transfer_ns = what->transfer_ns;
    }
    if (found)
        return LH_OK;
    if (!names_devices(what->name, n_devices, &added))
        return cli_error(c, LH_EINPUT,
                         "--inject: the pipeline has no link '%.60s', and it "
                         "does not name two of its devices (FROM-TO)",
                         what->name);
    for (uint32_t i = 0; i < *n_links; i++)
        if (links[i].from == added.from && links[i].to == added.to)
            return cli_error(c, LH_EINPUT,
                             "--inject: messages from device %" PRIu32
                             " to %" PRIu32 " take link '%.60s'",
                             added.from, added.to, links[i].name);
    added.name = what->name;
    added.latency_ns = what->latency_ns > 0 ? what->latency_ns : 0;
    added.transfer_ns = what->transfer_ns > 0 ? what->transfer_ns : 0;
    links[(*n_links)++] = added;
    return LH_OK;
}

/* --- copying the pipeline
 * ------------------------------------------------------ */

typedef struct parts {
    lh_chunk *chunks;
    lh_link *links;
    int64_t *limits;
    lh_site *sites;
    uint32_t *device_sites;
    lh_dp_op *ops;
} parts;

static bool allocate(parts *x, const lh_pipeline *p, uint32_t n_injections)
{
    uint32_t devices = lh_pipeline_n_devices(p);
    x->chunks = calloc(lh_pipeline_n_chunks(p), sizeof *x->chunks);
    x->links = calloc((size_t)lh_pipeline_n_links(p) + n_injections + 1,
                      sizeof *x->links);
    x->limits = calloc(devices, sizeof *x->limits);
    x->sites = calloc((size_t)lh_pipeline_n_sites(p) + 1, sizeof *x->sites);
    x->device_sites = calloc(devices, sizeof *x->device_sites);
    x->ops = calloc((size_t)lh_pipeline_n_dp_ops(p) + 1, sizeof *x->ops);
    return x->chunks && x->links && x->limits && x->sites && x->device_sites &&
           x->ops;
}

static void free_parts(parts *x)
{
    free(x->chunks);
    free(x->links);
    free(x->limits);
    free(x->sites);
    free(x->device_sites);
    free(x->ops);
}

static void fill(const lh_pipeline *p, parts *x, lh_pipeline_desc *desc)
{
    const char *unit = lh_pipeline_memory_unit(p);
    bool limited = false;
    *desc = (lh_pipeline_desc){
        .size = sizeof *desc,
        .n_devices = lh_pipeline_n_devices(p),
        .n_microbatches = lh_pipeline_n_microbatches(p),
        .joint = lh_pipeline_is_joint(p),
        .n_chunks = lh_pipeline_n_chunks(p),
        .chunks = x->chunks,
        .n_links = lh_pipeline_n_links(p),
        .links = x->links,
        .memory_unit = *unit ? unit : NULL,
        .n_sites = lh_pipeline_n_sites(p),
        .sites = x->sites,
        .n_dp_ops = lh_pipeline_n_dp_ops(p),
        .dp_ops = x->ops,
        .first_gathers = lh_pipeline_first_gathers(p),
    };
    desc->n_enqueue = lh_pipeline_enqueue(p, &desc->enqueue);
    desc->n_dequeue = lh_pipeline_dequeue(p, &desc->dequeue);
    for (uint32_t i = 0; i < desc->n_chunks; i++)
        x->chunks[i] = *lh_pipeline_chunk(p, i);
    for (uint32_t i = 0; i < desc->n_links; i++)
        x->links[i] = *lh_pipeline_link(p, i);
    for (uint32_t i = 0; i < desc->n_sites; i++)
        x->sites[i].name = lh_pipeline_site_name(p, i);
    for (uint32_t i = 0; i < desc->n_dp_ops; i++)
        x->ops[i] = *lh_pipeline_dp_op(p, i);
    for (uint32_t i = 0; i < desc->n_devices; i++) {
        x->limits[i] = lh_pipeline_memory_limit(p, i);
        limited = limited || x->limits[i] != LH_NO_LIMIT;
        x->device_sites[i] = lh_pipeline_device_site(p, i);
    }
    desc->memory_limits = limited ? x->limits : NULL;
    desc->device_sites = desc->n_sites ? x->device_sites : NULL;
}

static lh_status inject(cli *c, char *text, const lh_pipeline *p,
                        uint64_t message_bytes, parts *x, lh_pipeline **out)
{
    lh_pipeline_desc desc;
    char *more = NULL;
    fill(p, x, &desc);
    for (char *one = strtok_r(text, ";", &more); one;
         one = strtok_r(NULL, ";", &more)) {
        injection what;
        CLI_TRY(take_one(c, one, message_bytes, &what));
        CLI_TRY(inject_one(c, &what, desc.n_devices, x->links, &desc.n_links));
    }
    return lh_pipeline_make(&desc, out, &c->err);
}

lh_status cli_inject(cli *c, const char *text, const lh_pipeline *pipeline,
                     uint64_t message_bytes, lh_pipeline **out)
{
    parts x = {0};
    uint32_t n = 1;
    for (const char *p = text; *p; p++)
        n += *p == ';';
    size_t len = strlen(text);
    char *copy = malloc(len + 1);
    lh_status status = LH_OK;
    if (!copy || !allocate(&x, pipeline, n)) {
        status = cli_no_memory(c);
    } else {
        memcpy(copy, text, len + 1);
        status = inject(c, copy, pipeline, message_bytes, &x, out);
    }
    free_parts(&x);
    free(copy);
    return status;
}

lh_status cli_faster(cli *c, const lh_pipeline *p, uint32_t speed,
                     lh_pipeline **out)
{
    parts x = {0};
    lh_pipeline_desc desc;
    if (!allocate(&x, p, 0)) {
        free_parts(&x);
        return cli_no_memory(c);
    }
    fill(p, &x, &desc);
    for (uint32_t i = 0; i < desc.n_chunks; i++) {
        lh_chunk *k = &x.chunks[i];
        k->f_ns /= speed;
        k->d_ns /= speed;
        k->w_ns /= speed;
        k->all_gather_ns /= speed;
        k->reduce_scatter_ns /= speed;
        k->dp_latency_ns /= speed;
    }
    for (uint32_t i = 0; i < desc.n_links; i++) {
        x.links[i].latency_ns /= speed;
        x.links[i].transfer_ns /= speed;
    }
    for (uint32_t i = 0; i < desc.n_dp_ops; i++)
        x.ops[i].transfer_ns /= speed;
    lh_status status = lh_pipeline_make(&desc, out, &c->err);
    free_parts(&x);
    return status;
}
