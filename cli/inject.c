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

static void set_delays(const injection *what, lh_link *link)
{
    if (what->latency_ns >= 0)
        link->latency_ns = what->latency_ns;
    if (what->transfer_ns >= 0)
        link->transfer_ns = what->transfer_ns;
}

/* It has the name that links without one are given. */
static bool is_unnamed(const lh_link *link)
{
    char name[32];
    snprintf(name, sizeof name, "%" PRIu32 "-%" PRIu32, link->from, link->to);
    return strcmp(link->name, name) == 0;
}

/* "FROM>TO", of which the text has `from` letters, and then, from `at` on,
 * `to`. */
static bool goes(const lh_link *link, const char *from, size_t n_from,
                 const char *to, size_t n_to)
{
    return strlen(link->name) == n_from + 1 + n_to &&
           strncmp(link->name, from, n_from) == 0 &&
           link->name[n_from] == '>' &&
           strncmp(link->name + n_from + 1, to, n_to) == 0;
}

/* Those called `a>b`, and `b>a` where the dash or the '>' at `at` is a dash. */
static bool inject_ends(const injection *what, size_t at, bool only_look,
                        lh_link *links, uint32_t n_links)
{
    const char *a = what->name, *b = a + at + 1;
    const size_t n_b = strlen(b);
    bool found = false;
    for (uint32_t i = 0; i < n_links; i++) {
        const bool there = goes(&links[i], a, at, b, n_b);
        const bool back = a[at] == '-' && goes(&links[i], b, n_b, a, at);
        if ((there || back) && !only_look)
            set_delays(what, &links[i]);
        found = found || there || back;
    }
    return found;
}

/* Of links between datacenters: `a-b` or `a>b`. */
static lh_status inject_between(cli *c, const injection *what, lh_link *links,
                                uint32_t n_links, bool *found)
{
    size_t ways = 0, at = 0;
    for (size_t i = 0; what->name[i]; i++) {
        const bool ends = what->name[i] == '-' || what->name[i] == '>';
        if (!ends || !inject_ends(what, i, true, links, n_links))
            continue;
        ways++;
        at = i;
    }
    *found = ways > 0;
    if (ways > 1)
        return cli_error(c, LH_EINPUT,
                         "--inject: '%.120s' may be several links, for names "
                         "of datacenters have dashes; use '>'",
                         what->name);
    if (ways)
        inject_ends(what, at, false, links, n_links);
    return LH_OK;
}

static bool has_messages(const lh_pipeline_desc *desc, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i + 1 < desc->n_chunks; i++) {
        uint32_t x = desc->chunks[i].device, y = desc->chunks[i + 1].device;
        if ((x == a && y == b) || (x == b && y == a))
            return true;
    }
    return false;
}

/* The link between two devices, which is added where there is none. */
static lh_status inject_device(cli *c, const injection *what, uint32_t from,
                               uint32_t to, lh_link *links, uint32_t *n_links)
{
    for (uint32_t i = 0; i < *n_links; i++) {
        if (links[i].from != from || links[i].to != to)
            continue;
        if (!is_unnamed(&links[i]))
            return cli_error(c, LH_EINPUT,
                             "--inject: messages from device %" PRIu32
                             " to %" PRIu32 " take link '%.60s'",
                             from, to, links[i].name);
        set_delays(what, &links[i]);
        return LH_OK;
    }
    lh_link *added = &links[(*n_links)++];
    *added = (lh_link){.from = from, .to = to};
    set_delays(what, added);
    added->name = ""; /* see inject_all() */
    return LH_OK;
}

/* "west>east, east>west": each name once. */
static void list_links(const lh_link *links, uint32_t n, char *text,
                       size_t room)
{
    size_t len = 0;
    *text = '\0';
    for (uint32_t i = 0; i < n && len < room; i++) {
        uint32_t k = 0;
        while (strcmp(links[k].name, links[i].name) != 0)
            k++;
        if (k == i)
            len += (size_t)snprintf(text + len, room - len, "%s%s",
                                    len ? ", " : "", links[i].name);
    }
}

static lh_status inject_one(cli *c, const injection *what,
                            lh_pipeline_desc *desc, lh_link *links)
{
    const uint32_t n_devices = desc->n_devices;
    uint32_t *n_links = &desc->n_links;
    bool found = false;
    char names[240];
    cli_link ends;
    for (uint32_t i = 0; i < *n_links; i++) {
        if (is_unnamed(&links[i]) || strcmp(links[i].name, what->name) != 0)
            continue;
        found = true;
        set_delays(what, &links[i]);
    }
    if (!found)
        CLI_TRY(inject_between(c, what, links, *n_links, &found));
    if (found)
        return LH_OK;
    if (!cli_find_link(what->name, strlen(what->name), find_device, &n_devices,
                       &ends)) {
        list_links(links, *n_links, names, sizeof names);
        return cli_error(c, LH_EINPUT,
                         "--inject: '%.60s' is no link of the pipeline%s%s, "
                         "nor two of its %" PRIu32
                         " devices, such as 0-1 (both "
                         "ways) or 0>1",
                         what->name, *names ? ": " : "", names, n_devices);
    }
    if (!has_messages(desc, ends.from, ends.to))
        return cli_error(c, LH_EINPUT,
                         "--inject: '%.60s' changes nothing: no messages go "
                         "between devices %" PRIu32 " and %" PRIu32,
                         what->name, ends.from, ends.to);
    CLI_TRY(inject_device(c, what, ends.from, ends.to, links, n_links));
    return ends.one_way
               ? LH_OK
               : inject_device(c, what, ends.to, ends.from, links, n_links);
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
        CLI_TRY(inject_one(c, &what, desc, links));
    }
    for (uint32_t i = 0; i < desc->n_links; i++)
        if (!*links[i].name)
            links[i].name = NULL; /* gets the name of those without */
    return LH_OK;
}

lh_status cli_inject(cli *c, const char *text, const lh_pipeline *pipeline,
                     uint64_t message_bytes, lh_pipeline **out)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    CLI_TRY(lh_pipeline_describe(pipeline, &desc, &c->err));
    uint32_t n = 2; /* each may add a link either way */
    for (const char *p = text; *p; p++)
        n += *p == ';' ? 2u : 0u;
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
