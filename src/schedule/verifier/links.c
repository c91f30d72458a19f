/* SPDX-License-Identifier: Apache-2.0 */
/* Assigns messages to links and checks the explicit message orders. */
#include "schedule/verifier/verifier.h"

#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A link with its end points, for sorting. */
typedef struct ends {
    uint32_t from, to, link;
} ends;

/* A link with its name, for sorting. */
typedef struct link_name {
    const char *name;
    uint32_t link;
} link_name;

/* Compares links by sending, then receiving device, for qsort(). */
static int compare_ends(const void *a, const void *b)
{
    const ends *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

/* Compares links by name, then index, for qsort(). */
static int compare_named(const void *a, const void *b)
{
    const link_name *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->link > y->link) - (x->link < y->link);
}

/* Returns the link from one chunk's device to another chunk's device, by binary
 * search in `sorted` (n links); LHI_SAME_DEVICE or LHI_NO_LINK: none. */
static uint32_t find_link(const lhi_verifier *judge, const ends *sorted,
                          uint32_t n, uint32_t from_chunk, uint32_t to_chunk)
{
    ends key = {
        .from = lh_pipeline_chunk(judge->pipeline, from_chunk)->device,
        .to = lh_pipeline_chunk(judge->pipeline, to_chunk)->device,
    };
    if (key.from == key.to)
        return LHI_SAME_DEVICE;
    const ends *found =
        n ? bsearch(&key, sorted, n, sizeof key, compare_ends) : NULL;
    return found ? found->link : LHI_NO_LINK;
}

/* Numbers the distinct link names in alphabetical order; the numbers are the
 * verifier's link resources. */
static void number_names(lhi_verifier *judge, link_name *names, uint32_t n)
{
    if (n)
        qsort(names, n, sizeof *names, compare_named);
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(names[i].name, names[i - 1].name) != 0)
            judge->resource_names[judge->n_resources++] = names[i].name;
        judge->link_resources[names[i].link] = judge->n_resources - 1;
    }
}

lh_status lhi_verify_find_links(lhi_verifier *judge, lh_error *err)
{
    uint32_t n = lh_pipeline_n_links(judge->pipeline);
    ends *sorted = LHI_NEW(judge->mem, ends, n);
    link_name *names = LHI_NEW(judge->mem, link_name, n);
    judge->resource_names = LHI_NEW(judge->mem, const char *, n);
    judge->link_resources = LHI_NEW(judge->mem, uint32_t, n);
    judge->forward = LHI_NEW(judge->mem, uint32_t, judge->n_chunks);
    judge->backward = LHI_NEW(judge->mem, uint32_t, judge->n_chunks);
    if (!sorted || !names || !judge->resource_names || !judge->link_resources ||
        !judge->forward || !judge->backward)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        const lh_link *link = lh_pipeline_link(judge->pipeline, i);
        sorted[i] = (ends){link->from, link->to, i};
        names[i] = (link_name){link->name, i};
    }
    if (n)
        qsort(sorted, n, sizeof *sorted, compare_ends);
    number_names(judge, names, n);
    for (uint32_t c = 0; c < judge->n_chunks; c++) {
        judge->forward[c] = judge->backward[c] = LHI_SAME_DEVICE;
        if (lhi_verify_has_next(judge, c))
            judge->forward[c] = find_link(judge, sorted, n, c, c + 1);
        if (lhi_verify_has_previous(judge, c))
            judge->backward[c] = find_link(judge, sorted, n, c, c - 1);
    }
    return LH_OK;
}

uint32_t lhi_verify_get_link(const lhi_verifier *judge, uint32_t node,
                             uint32_t *consumer)
{
    const lh_pass *pass = &judge->passes[node];
    uint32_t to = LH_NONE, link = LHI_SAME_DEVICE;
    if (pass->kind == LH_F && lhi_verify_has_next(judge, pass->chunk)) {
        to = pass->chunk + 1;
        link = judge->forward[pass->chunk];
    } else if ((pass->kind == LH_D || pass->kind == LH_B) &&
               lhi_verify_has_previous(judge, pass->chunk)) {
        to = pass->chunk - 1;
        link = judge->backward[pass->chunk];
    }
    if (consumer)
        *consumer = to;
    return link;
}

/* Compares a name with an element of a sorted list of names, for bsearch(). */
static int compare_name(const void *key, const void *item)
{
    return strcmp(key, *(const char *const *)item);
}

uint32_t lhi_verify_find_resource(const lhi_verifier *judge, const char *name)
{
    const char **found =
        judge->n_resources
            ? bsearch(name, judge->resource_names, judge->n_resources,
                      sizeof *judge->resource_names, compare_name)
            : NULL;
    return found ? (uint32_t)(found - judge->resource_names) : LH_NONE;
}

/* Returns the link resource over which the output of the pass `node` (index in
 * judge->passes) is sent; LH_NONE: no link. */
static uint32_t get_resource(const lhi_verifier *judge, uint32_t node)
{
    uint32_t link = lhi_verify_get_link(judge, node, NULL);
    if (link == LHI_SAME_DEVICE || link == LHI_NO_LINK)
        return LH_NONE;
    return judge->link_resources[link];
}

/* Checks that the message order of one link names passes whose outputs use link
 * resource `resource`, each once; adds violations. Sets listed[i] for the
 * passes with index i in judge->passes. */
static void check_order(lhi_verifier *judge, const lh_link_order *order,
                        uint32_t resource, bool *listed)
{
    for (uint32_t i = 0; i < order->n_passes; i++) {
        char text[LH_PASS_TEXT_SIZE];
        lh_pass_format(&order->passes[i], text);
        uint32_t node = lhi_verify_find_pass(judge, &order->passes[i]);
        if (node == LH_NONE)
            lhi_verify_add_violation(
                judge, "link %s, message %" PRIu32 ": no device runs %s",
                order->link, i + 1, text);
        else if (get_resource(judge, node) != resource)
            lhi_verify_add_violation(
                judge,
                "link %s, message %" PRIu32
                ": the output of %s does not use this link",
                order->link, i + 1, text);
        else if (listed[node])
            lhi_verify_add_violation(judge,
                                     "link %s, message %" PRIu32 ": %s again",
                                     order->link, i + 1, text);
        else
            listed[node] = true;
    }
}

lh_status lhi_verify_check_links(lhi_verifier *judge, lh_error *err)
{
    uint32_t n = lh_schedule_n_link_orders(judge->schedule);
    uint32_t total = judge->first[judge->n_rows];
    if (n == 0)
        return LH_OK;
    bool *listed = LHI_NEW(judge->mem, bool, total);
    bool *ordered = LHI_NEW(judge->mem, bool, judge->n_resources);
    if (!listed || !ordered)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        const lh_link_order *order = lh_schedule_link_order(judge->schedule, i);
        uint32_t resource = lhi_verify_find_resource(judge, order->link);
        if (resource == LH_NONE) {
            lhi_verify_add_violation(
                judge, "link order %" PRIu32 ": no link is named %s", i + 1,
                order->link);
        } else if (ordered[resource]) {
            lhi_verify_add_violation(judge,
                                     "link order %" PRIu32 ": link %s again",
                                     i + 1, order->link);
        } else {
            ordered[resource] = true;
            check_order(judge, order, resource, listed);
        }
    }
    for (uint32_t i = 0; i < judge->n_sorted; i++) {
        uint32_t node = judge->sorted[i].node;
        uint32_t resource = get_resource(judge, node);
        if (resource == LH_NONE || !ordered[resource] || listed[node])
            continue;
        char text[LH_PASS_TEXT_SIZE];
        lhi_verify_add_violation(
            judge, "link %s: the message of %s is not in its order",
            judge->resource_names[resource],
            lh_pass_format(&judge->passes[node], text));
    }
    return LH_OK;
}
