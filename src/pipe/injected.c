/* SPDX-License-Identifier: Apache-2.0 */
/* Links with other delays, by names as people give them. */
#include "pipe/pipeline_own.h"

#include "base/fail.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct injection {
    const char *name;
    int64_t latency_ns, transfer_ns; /* below 0: as it is */
} injection;

/* The number of a device, and what follows it. */
static bool take_device(const char **text, uint32_t n_devices, uint32_t *out)
{
    uint64_t device = 0;
    const char *at = *text;
    for (; *at >= '0' && *at <= '9'; at++) {
        device = 10 * device + (uint64_t)(*at - '0');
        if (device >= n_devices)
            return false;
    }
    if (at == *text)
        return false;
    *out = (uint32_t)device;
    *text = at;
    return true;
}

/* "0-1", both ways, or "0>1". */
static bool find_devices(const char *name, uint32_t n_devices, uint32_t *from,
                         uint32_t *to, bool *one_way)
{
    if (!take_device(&name, n_devices, from) || (*name != '-' && *name != '>'))
        return false;
    *one_way = *name++ == '>';
    return take_device(&name, n_devices, to) && !*name && *from != *to;
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
static lh_status inject_between(const injection *what, lh_link *links,
                                uint32_t n_links, bool *found, lh_error *err)
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
        return lhi_fail(err, LH_EINPUT,
                        "'%.120s' may be several links, for names "
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
static lh_status inject_device(const injection *what, uint32_t from,
                               uint32_t to, lh_link *links, uint32_t *n_links,
                               lh_error *err)
{
    for (uint32_t i = 0; i < *n_links; i++) {
        if (links[i].from != from || links[i].to != to)
            continue;
        if (!is_unnamed(&links[i]))
            return lhi_fail(err, LH_EINPUT,
                            "messages from device %" PRIu32 " to %" PRIu32
                            " take link '%.60s'",
                            from, to, links[i].name);
        set_delays(what, &links[i]);
        return LH_OK;
    }
    lh_link *added = &links[(*n_links)++];
    *added = (lh_link){.from = from, .to = to};
    set_delays(what, added);
    added->name = NULL; /* gets the name of those without */
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

static lh_status inject_one(const injection *what, lh_pipeline_desc *desc,
                            lh_link *links, lh_error *err)
{
    const uint32_t n_devices = desc->n_devices;
    uint32_t *n_links = &desc->n_links;
    bool found = false;
    char names[240];
    uint32_t from, to;
    bool one_way;
    for (uint32_t i = 0; i < *n_links; i++) {
        if (is_unnamed(&links[i]) || strcmp(links[i].name, what->name) != 0)
            continue;
        found = true;
        set_delays(what, &links[i]);
    }
    if (!found)
        LHI_TRY(inject_between(what, links, *n_links, &found, err));
    if (found)
        return LH_OK;
    if (!find_devices(what->name, n_devices, &from, &to, &one_way)) {
        list_links(links, *n_links, names, sizeof names);
        return lhi_fail(err, LH_EINPUT,
                        "'%.60s' is no link of the pipeline%s%s, "
                        "nor two of its %" PRIu32 " devices, such as 0-1 (both "
                        "ways) or 0>1",
                        what->name, *names ? ": " : "", names, n_devices);
    }
    if (!has_messages(desc, from, to))
        return lhi_fail(err, LH_EINPUT,
                        "'%.60s' changes nothing: no messages go "
                        "between devices %" PRIu32 " and %" PRIu32,
                        what->name, from, to);
    LHI_TRY(inject_device(what, from, to, links, n_links, err));
    return one_way ? LH_OK : inject_device(what, to, from, links, n_links, err);
}

lh_status lh_pipeline_inject(const lh_pipeline *pipeline, const char *link,
                             int64_t latency_ns, int64_t transfer_ns,
                             lh_pipeline **out, lh_error *err)
{
    const injection what = {link, latency_ns, transfer_ns};
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(pipeline, &desc, err));
    /* Two devices may get a link either way. */
    lh_link *links = calloc(desc.n_links + (size_t)2, sizeof *links);
    if (!links)
        return lhi_fail_nomem(err);
    if (desc.n_links > 0)
        memcpy(links, desc.links, desc.n_links * sizeof *links);
    lh_status status = inject_one(&what, &desc, links, err);
    desc.links = links;
    if (status == LH_OK)
        status = lh_pipeline_make(&desc, out, err);
    free(links);
    return status;
}
