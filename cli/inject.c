/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "inject.h"
#include "links.h"
#include "values.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct injection {
    char *name;                      /* in the copied text */
    int64_t latency_ns, transfer_ns; /* -1: as it is */
} injection;

static lh_status take_value(cli *c, const char *pair, uint64_t message_bytes,
                            injection *out)
{
    double gbps;
    const char *rest;
    if (strncmp(pair, "latency:", 8) == 0 &&
        cli_parse_time(pair + 8, &out->latency_ns))
        return LH_OK;
    if (strncmp(pair, "transfer:", 9) == 0 &&
        cli_parse_time(pair + 9, &out->transfer_ns))
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

/* The number of one of the pipeline's devices. */
static bool find_device(const void *context, const char *name, size_t len,
                        uint32_t *out)
{
    const uint32_t *n_devices = context;
    uint64_t device = 0;
    for (size_t i = 0; i < len; i++) {
        if (name[i] < '0' || name[i] > '9')
            return false;
        device = 10 * device + (uint64_t)(name[i] - '0');
        if (device >= *n_devices)
            return false;
    }
    *out = (uint32_t)device;
    return len > 0;
}

static lh_status inject_one(cli *c, const injection *what, uint32_t n_devices,
                            lh_link *links, uint32_t *n_links)
{
    bool found = false;
    cli_link ends;
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
    if (!cli_find_link(what->name, strlen(what->name), find_device, &n_devices,
                       &ends) ||
        ends.one_way)
        return cli_error(c, LH_EINPUT,
                         "--inject: the pipeline has no link '%.60s', and it "
                         "does not name two of its devices (FROM-TO)",
                         what->name);
    for (uint32_t i = 0; i < *n_links; i++)
        if (links[i].from == ends.from && links[i].to == ends.to)
            return cli_error(c, LH_EINPUT,
                             "--inject: messages from device %" PRIu32
                             " to %" PRIu32 " take link '%.60s'",
                             ends.from, ends.to, links[i].name);
    links[(*n_links)++] = (lh_link){
        .name = what->name,
        .from = ends.from,
        .to = ends.to,
        .latency_ns = what->latency_ns > 0 ? what->latency_ns : 0,
        .transfer_ns = what->transfer_ns > 0 ? what->transfer_ns : 0,
    };
    return LH_OK;
}

/* A copy of an array, with room for `more` items at its end. */
static void *copy_array(const void *from, size_t n, size_t more, size_t size)
{
    void *copy = calloc(n + more + 1, size);
    if (copy && n > 0)
        memcpy(copy, from, n * size);
    return copy;
}

static lh_status inject_all(cli *c, char *text, uint64_t message_bytes,
                            lh_pipeline_desc *desc, lh_link *links)
{
    char *more = NULL;
    for (char *one = strtok_r(text, ";", &more); one;
         one = strtok_r(NULL, ";", &more)) {
        injection what;
        CLI_TRY(take_one(c, one, message_bytes, &what));
        CLI_TRY(inject_one(c, &what, desc->n_devices, links, &desc->n_links));
    }
    return LH_OK;
}

lh_status cli_inject(cli *c, const char *text, const lh_pipeline *pipeline,
                     uint64_t message_bytes, lh_pipeline **out)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    CLI_TRY(lh_pipeline_describe(pipeline, &desc, &c->err));
    uint32_t n = 1;
    for (const char *p = text; *p; p++)
        n += *p == ';';
    char *words = copy_array(text, strlen(text) + 1, 0, 1);
    lh_link *links = copy_array(desc.links, desc.n_links, n, sizeof *links);
    lh_status status = LH_OK;
    if (!words || !links)
        status = cli_no_memory(c);
    else
        status = inject_all(c, words, message_bytes, &desc, links);
    desc.links = links;
    if (status == LH_OK)
        status = lh_pipeline_make(&desc, out, &c->err);
    free(links);
    free(words);
    return status;
}

lh_status cli_faster(cli *c, const lh_pipeline *p, uint32_t speed,
                     lh_pipeline **out)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    CLI_TRY(lh_pipeline_describe(p, &desc, &c->err));
    lh_chunk *chunks =
        copy_array(desc.chunks, desc.n_chunks, 0, sizeof *chunks);
    lh_link *links = copy_array(desc.links, desc.n_links, 0, sizeof *links);
    lh_dp_op *ops = copy_array(desc.dp_ops, desc.n_dp_ops, 0, sizeof *ops);
    bool copied = chunks && links && ops;
    for (uint32_t i = 0; copied && i < desc.n_chunks; i++) {
        lh_chunk *k = &chunks[i];
        k->f_ns /= speed;
        k->d_ns /= speed;
        k->w_ns /= speed;
        k->all_gather_ns /= speed;
        k->reduce_scatter_ns /= speed;
        k->dp_latency_ns /= speed;
    }
    for (uint32_t i = 0; copied && i < desc.n_links; i++) {
        links[i].latency_ns /= speed;
        links[i].transfer_ns /= speed;
    }
    for (uint32_t i = 0; copied && i < desc.n_dp_ops; i++)
        ops[i].transfer_ns /= speed;
    desc.chunks = chunks;
    desc.links = links;
    desc.dp_ops = ops;
    lh_status status =
        copied ? lh_pipeline_make(&desc, out, &c->err) : cli_no_memory(c);
    free(chunks);
    free(links);
    free(ops);
    return status;
}
