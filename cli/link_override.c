/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "link_override.h"
#include "values.h"

#include <longhaul/experimental/pipeline.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One link override from --inject. */
typedef struct link_override {
    char *name;                      /* points into the copied text */
    int64_t latency_ns, transfer_ns; /* -1: unchanged */
} link_override;

/* Parses one value of --inject: latency:TIME, transfer:TIME or gbps:NUMBER.
 * gbps becomes the transfer time of a message of message_bytes. */
static lh_status parse_value(cli *c, const char *pair, uint64_t message_bytes,
                             link_override *out)
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

/* Parses one --inject override, LINK=KEY:VALUE,..., into *out; modifies `text`.
 * Times that it does not set become -1. message_bytes: message size to convert
 * gbps into a transfer time. */
static lh_status parse_override(cli *c, char *text, uint64_t message_bytes,
                                link_override *out)
{
    char *is = strchr(text, '='), *more = NULL;
    if (!is || is == text)
        return cli_usage(c, "--inject: '%.60s' must be LINK=latency:...", text);
    *is = '\0';
    *out = (link_override){text, -1, -1};
    for (char *pair = strtok_r(is + 1, ",", &more); pair;
         pair = strtok_r(NULL, ",", &more))
        CLI_TRY(parse_value(c, pair, message_bytes, out));
    if (out->latency_ns < 0 && out->transfer_ns < 0)
        return cli_usage(c,
                         "--inject: latency, transfer or gbps is required "
                         "for link '%.60s'",
                         text);
    return LH_OK;
}

/* Returns a copy of n elements of `size` bytes, to be freed by the caller;
 * NULL: out of memory. */
static void *copy_array(const void *from, size_t n, size_t size)
{
    void *copy = calloc(n + 1, size);
    if (copy && n > 0)
        memcpy(copy, from, n * size);
    return copy;
}

lh_status cli_inject(cli *c, const char *text, const lh_pipeline *pipeline,
                     uint64_t message_bytes, lh_pipeline **out)
{
    char *words = copy_array(text, strlen(text) + 1, 1), *more = NULL;
    lh_pipeline *made = NULL;
    lh_status status = words ? LH_OK : cli_no_memory(c);
    if (words && !words[strspn(words, ";")])
        status = cli_usage(c, "--inject: a link is required");
    for (char *one = words ? strtok_r(words, ";", &more) : NULL;
         one && status == LH_OK; one = strtok_r(NULL, ";", &more)) {
        link_override what;
        lh_pipeline *next = NULL;
        lh_error why;
        status = parse_override(c, one, message_bytes, &what);
        if (status == LH_OK &&
            lh_pipeline_set_link_delay(made ? made : pipeline, what.name,
                                       what.latency_ns, what.transfer_ns, &next,
                                       &why) != LH_OK)
            status = cli_error(c, why.code, "--inject: %s", why.text);
        if (status == LH_OK) {
            lh_pipeline_free(made);
            made = next;
        }
    }
    free(words);
    if (status != LH_OK)
        lh_pipeline_free(made);
    else
        *out = made;
    return status;
}

lh_status cli_scale_speed(cli *c, const lh_pipeline *p, uint32_t speed,
                          lh_pipeline **out)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    CLI_TRY(lh_pipeline_describe(p, &desc, &c->err));
    lh_chunk *chunks = copy_array(desc.chunks, desc.n_chunks, sizeof *chunks);
    lh_link *links = copy_array(desc.links, desc.n_links, sizeof *links);
    lh_dp_op *ops = copy_array(desc.dp_ops, desc.n_dp_ops, sizeof *ops);
    bool copied = chunks && links && ops;
    for (uint32_t i = 0; copied && i < desc.n_chunks; i++) {
        lh_chunk *k = &chunks[i];
        k->f_ns /= speed;
        k->d_ns /= speed;
        k->w_ns /= speed;
        k->all_gather_ns /= speed;
        k->reduce_scatter_ns /= speed;
        k->dp_latency_ns /= speed;
        /* remains an offload */
        k->offload_ns = (k->offload_ns + speed - 1) / speed;
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
