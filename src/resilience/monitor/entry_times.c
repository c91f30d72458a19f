/* SPDX-License-Identifier: Apache-2.0 */
#include "resilience/monitor/monitor_internal.h"

#include "base/fail.h"
#include "base/sort.h"

#include <inttypes.h>
#include <stdlib.h>

/* A message with its entry time, for sorting. */
typedef struct sorted_entry {
    lh_observed_message *message;
    int64_t ns;
} sorted_entry;

/* Compares messages by link, then by entry time into the link, for qsort(). */
static int compare_entries(const void *a, const void *b)
{
    const sorted_entry *x = a, *y = b;
    if (x->message->link != y->message->link)
        return x->message->link < y->message->link ? -1 : 1;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

/* Raises the entry times of one link's messages, sorted by entry, to the end of
 * the predecessor's transfer (its entry + transfer_ns) where they are earlier.
 * */
static void correct_entries(const sorted_entry *entries, size_t n,
                            int64_t transfer_ns)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < n; i++) {
        const lh_observed_message *x = entries[i].message;
        if (x->arrived_ns - x->entered_ns < least)
            least = x->arrived_ns - x->entered_ns;
    }
    for (size_t i = 1; i < n; i++) {
        lh_observed_message *x = entries[i].message;
        int64_t free_ns =
            entries[i - 1].message->arrived_ns - least + transfer_ns;
        int64_t latest = x->arrived_ns - least;
        if (free_ns > latest)
            free_ns = latest;
        if (x->entered_ns < free_ns)
            x->entered_ns = free_ns;
    }
}

/* Corrects the entry times of n observed messages into their links: none enters
 * before its predecessor's transfer has ended. The predecessor's entry is its
 * arrival minus the iteration's least delay, its transfer time the pipeline's.
 * A clock offset shifts both equally. */
lh_status lh_observation_estimate_entry(const lh_pipeline *pipeline, size_t n,
                                        lh_observed_message *messages,
                                        lh_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (messages[i].link >= lh_pipeline_n_links(pipeline))
            return lhi_fail(err, LH_EINVAL, "there is no link %" PRIu32,
                            messages[i].link);
    sorted_entry *entries = calloc(n + 1, sizeof *entries);
    if (!entries)
        return lhi_fail_nomem(err);
    for (size_t i = 0; i < n; i++)
        entries[i] = (sorted_entry){&messages[i], messages[i].entered_ns};
    lhi_sort(entries, n, sizeof *entries, compare_entries);
    for (size_t i = 0, end; i < n; i = end) {
        uint32_t link = entries[i].message->link;
        for (end = i; end < n && entries[end].message->link == link;)
            end++;
        correct_entries(entries + i, end - i,
                        lh_pipeline_link(pipeline, link)->transfer_ns);
    }
    free(entries);
    return LH_OK;
}
