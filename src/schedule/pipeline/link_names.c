/* SPDX-License-Identifier: Apache-2.0 */
/* Looking up links by user-supplied names. */
#include "schedule/pipeline/link_names.h"
#include "schedule/pipeline/pipeline_internal.h"

#include "base/fail.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Checks whether a link has an explicit name; false for a default name, which
 * is derived from the link's ends. */
static bool has_own_name(const lh_link *link)
{
    char plain[32];
    snprintf(plain, sizeof plain, "%" PRIu32 "-%" PRIu32, link->from, link->to);
    return link->name && strcmp(link->name, plain) != 0;
}

/* Sets hit[i] for all links with the explicit name `name`; returns their
 * number. */
static uint32_t mark_named(const lhi_link_list *list, const char *name,
                           bool *hit)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n_links; i++) {
        const lh_link *link = &list->links[i];
        if (!has_own_name(link) || strcmp(link->name, name) != 0)
            continue;
        hit[i] = true;
        n++;
    }
    return n;
}

/* Sets hit[i] for links called a>b (`back`: b>a), where `name` is "a-b" and its
 * dash has index `at`. Returns whether there are any. `hit` NULL: only returns
 * that. */
static bool mark_between(const lhi_link_list *list, const char *name, size_t at,
                         bool back, bool *hit)
{
    size_t len = strlen(name), n_b = len - at - 1;
    const char *b = name + at + 1;
    bool any = false;
    for (uint32_t i = 0; i < list->n_links; i++) {
        const char *is = list->links[i].name;
        const char *first = back ? b : name, *second = back ? name : b;
        size_t n_first = back ? n_b : at, n_second = back ? at : n_b;
        if (!is || strlen(is) != len || is[n_first] != '>' ||
            strncmp(is, first, n_first) != 0 ||
            strncmp(is + n_first + 1, second, n_second) != 0)
            continue;
        any = true;
        if (hit)
            hit[i] = true;
    }
    return any;
}

/* Sets hit[i] for the links between two datacenters named 'A-B'. *found: the
 * name has that form. Fails if several name splits fit. */
static lh_status mark_sites(const lhi_link_list *list, const char *name,
                            bool *hit, bool *found, lh_error *err)
{
    size_t place = 0, ways = 0;
    for (size_t at = 0; name[at]; at++)
        if (name[at] == '-' && (mark_between(list, name, at, false, NULL) ||
                                mark_between(list, name, at, true, NULL))) {
            place = at;
            ways++;
        }
    if (ways > 1)
        return lhi_fail(err, LH_EINPUT,
                        "'%.120s' is ambiguous because datacenter names "
                        "contain dashes; use '>'",
                        name);
    *found = ways == 1;
    if (*found) {
        mark_between(list, name, place, false, hit);
        mark_between(list, name, place, true, hit);
    }
    return LH_OK;
}

/* Parses a device number at a text's beginning into *out; returns the text
 * after it, or NULL if there is none. */
static const char *scan_device(const char *text, uint32_t n_devices,
                               uint32_t *out)
{
    uint64_t device = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        device = 10 * device + (uint64_t)(*at - '0');
        if (device >= n_devices)
            return NULL;
    }
    *out = (uint32_t)device;
    return at > text ? at : NULL;
}

/* Parses two device numbers into *a and *b: "2-3" for both directions or "2>3"
 * for one (*one_way). Returns false if the name has another form. */
static bool scan_ends(const char *name, uint32_t n_devices, uint32_t *a,
                      uint32_t *b, bool *one_way)
{
    const char *at = scan_device(name, n_devices, a);
    if (!at || (*at != '-' && *at != '>'))
        return false;
    *one_way = *at == '>';
    at = scan_device(at + 1, n_devices, b);
    return at && *at == '\0' && *a != *b;
}

/* Checks whether consecutive chunks run on the devices `from` and `to`, in
 * either order. */
static bool has_messages(const lh_pipeline *p, uint32_t from, uint32_t to)
{
    uint32_t n = lh_pipeline_n_chunks(p);
    for (uint32_t c = 0; c + 1 < n; c++) {
        uint32_t x = lh_pipeline_chunk(p, c)->device;
        uint32_t y = lh_pipeline_chunk(p, c + 1)->device;
        if (lhi_is_last_chunk(p, c))
            continue;
        if ((x == from && y == to) || (x == to && y == from))
            return true;
    }
    return false;
}

/* Sets hit[i] for the link without own name from device `from` to device `to`;
 * appends the link if it is missing. Fails if the link has an explicit name,
 * which must be used instead. */
static lh_status mark_one_way(lhi_link_list *list, uint32_t from, uint32_t to,
                              bool *hit, lh_error *err)
{
    for (uint32_t i = 0; i < list->n_links; i++) {
        const lh_link *link = &list->links[i];
        if (link->from != from || link->to != to)
            continue;
        if (has_own_name(link))
            return lhi_fail(err, LH_EINPUT,
                            "messages from device %" PRIu32 " to %" PRIu32
                            " use the link '%.60s'; use that name",
                            from, to, link->name);
        hit[i] = true;
        return LH_OK;
    }
    hit[list->n_links] = true;
    list->links[list->n_links++] = (lh_link){.from = from, .to = to};
    return LH_OK;
}

/* Formats all links' names as "west>east, east>west", each name once,
 * into `text` (`room` bytes). */
static void list_names(const lhi_link_list *list, char *text, size_t room)
{
    size_t len = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < list->n_links && len < room; i++) {
        const char *name = list->links[i].name;
        uint32_t k = 0;
        while (name && k < i &&
               (!list->links[k].name || strcmp(list->links[k].name, name) != 0))
            k++;
        if (name && k == i)
            len += (size_t)snprintf(text + len, room - len, "%s%s",
                                    len ? ", " : "", name);
    }
}

lh_status lhi_find_links_by_name(lhi_link_list *list, const char *name,
                                 bool *hit, lh_error *err)
{
    uint32_t a, b, n = lh_pipeline_n_devices(list->pipeline);
    bool one_way, found = mark_named(list, name, hit) > 0;
    char names[240];
    if (!found)
        LHI_TRY(mark_sites(list, name, hit, &found, err));
    if (found)
        return LH_OK;
    if (!scan_ends(name, n, &a, &b, &one_way)) {
        list_names(list, names, sizeof names);
        return lhi_fail(err, LH_EINPUT,
                        "'%.60s' is neither a link of the pipeline%s%s, nor a "
                        "pair of its %" PRIu32
                        " devices, such as 0-1 (both ways) or "
                        "0>1",
                        name, *names ? ": " : "", names, n);
    }
    if (!has_messages(list->pipeline, a, b))
        return lhi_fail(err, LH_EINPUT,
                        "'%.60s' has no effect: no messages are sent between "
                        "devices %" PRIu32 " and %" PRIu32,
                        name, a, b);
    LHI_TRY(mark_one_way(list, a, b, hit, err));
    return one_way ? LH_OK : mark_one_way(list, b, a, hit, err);
}
