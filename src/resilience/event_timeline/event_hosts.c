/* SPDX-License-Identifier: Apache-2.0 */
/* Finds links between hosts by name: h0-h4 for both directions, h0>h4 for one,
 * or a pipeline link, which every replica has. */
#include "resilience/event_timeline/timeline.h"
#include "resilience/placement/placement.h"
#include "resilience/placement/placement_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Parses a host ("h12") at the beginning of `text` into *out. Returns the text
 * after it, or NULL if there is no host below n_hosts. */
static const char *scan_host(const char *text, uint32_t n_hosts, uint32_t *out)
{
    uint64_t host = 0;
    const char *at = text + 1;
    if (*text != 'h')
        return NULL;
    for (; *at >= '0' && *at <= '9'; at++) {
        host = 10 * host + (uint64_t)(*at - '0');
        if (host >= n_hosts)
            return NULL;
    }
    *out = (uint32_t)host;
    return at > text + 1 ? at : NULL;
}

/* Parses a link between two different hosts: "h0-h4" (both directions) or
 * "h0>h4" (*one_way). Returns false if the name has another form. */
static bool parse_pair(const char *name, uint32_t n_hosts, uint32_t *a,
                       uint32_t *b, bool *one_way)
{
    const char *at = scan_host(name, n_hosts, a);
    if (!at || (*at != '-' && *at != '>'))
        return false;
    *one_way = *at == '>';
    at = scan_host(at + 1, n_hosts, b);
    return at && *at == '\0' && *a != *b;
}

/* Sets *out to the link's index from host `from` to host `to` in
 * c->host_links; appends the link if it is new. */
static lh_status get_link_index(lh_event_timeline *c, uint32_t from,
                                uint32_t to, uint32_t *out, lh_error *err)
{
    for (*out = 0; *out < c->n_host_links; ++*out)
        if (c->host_links[*out].from == from && c->host_links[*out].to == to)
            return LH_OK;
    if ((c->n_host_links & (c->n_host_links - 1)) == 0) {
        size_t room = c->n_host_links ? 2 * (size_t)c->n_host_links : 1;
        lh_link *more = realloc(c->host_links, room * sizeof *more);
        if (!more)
            return lhi_fail_nomem(err);
        c->host_links = more;
    }
    c->host_links[c->n_host_links++] =
        lhi_host_placement_nominal_link(c->placement, from, to);
    return LH_OK;
}

/* An effect's links, without duplicates. */
typedef struct link_list {
    uint32_t *links, n, room;
} link_list;

/* Appends the link from host `from` to host `to` to `f`, the links that an
 * event slows, unless it is listed. */
static lh_status add_link(lh_event_timeline *c, link_list *f, uint32_t from,
                          uint32_t to, lh_error *err)
{
    uint32_t number, i = 0;
    LHI_TRY(get_link_index(c, from, to, &number, err));
    while (i < f->n && f->links[i] != number)
        i++;
    if (i < f->n)
        return LH_OK;
    if (f->n == f->room) {
        uint32_t room = f->room ? 2 * f->room : 8;
        uint32_t *more = realloc(f->links, room * sizeof *more);
        if (!more)
            return lhi_fail_nomem(err);
        f->links = more;
        f->room = room;
    }
    f->links[f->n++] = number;
    return LH_OK;
}

/* Appends the host links that carry the pipeline link called `name`, one for
 * each replica, to `f`, the links that an event slows. */
static lh_status add_replica_links(lh_event_timeline *c, const char *name,
                                   link_list *f, lh_error *err)
{
    const lh_pipeline *p = c->placement->pipeline;
    bool *hit = calloc(p->n_links + (size_t)1, sizeof *hit);
    if (!hit)
        return lhi_fail_nomem(err);
    lh_status status = lh_event_match_links(p, name, hit, err);
    for (uint32_t i = 0; status == LH_OK && i < p->n_links; i++)
        for (uint32_t r = 0;
             hit[i] && status == LH_OK && r < c->placement->n_replicas; r++)
            status = add_link(c, f, r * p->n_devices + p->links[i].from,
                              r * p->n_devices + p->links[i].to, err);
    free(hit);
    return status;
}

/* Appends the host links that `name` denotes to `f`, the links that an event
 * slows: "h0-h4" for a pair of hosts, or a pipeline link's name for its host
 * links in all replicas. */
static lh_status add_named_links(lh_event_timeline *c, const char *name,
                                 link_list *f, lh_error *err)
{
    uint32_t a, b;
    bool one_way;
    if (!parse_pair(name, c->placement->n_hosts, &a, &b, &one_way))
        return add_replica_links(c, name, f, err);
    LHI_TRY(add_link(c, f, a, b, err));
    return one_way ? LH_OK : add_link(c, f, b, a, err);
}

lh_status lhi_event_find_host_links(lh_event_timeline *c,
                                    lhi_event_effect *effect, lh_error *err)
{
    const lh_event *e = effect->event;
    link_list f = {0};
    lh_status status = LH_OK;
    for (uint32_t i = 0; status == LH_OK && i < e->n_links; i++)
        status = add_named_links(c, e->links[i], &f, err);
    if (status == LH_OK) {
        effect->links = LHI_NEW(c->mem, uint32_t, f.n);
        if (!effect->links)
            status = lhi_fail_nomem(err);
    }
    if (status == LH_OK) {
        memcpy(effect->links, f.links, f.n * sizeof *f.links);
        effect->n_links = f.n;
    }
    free(f.links);
    return status;
}
