/* SPDX-License-Identifier: Apache-2.0 */
/* Input: an events file. If it parses, it is applied to a small pipeline as an
 * event timeline. */
#include "format/job/events_file.h"
#include "fuzz.h"

#include <longhaul/experimental/events.h>

static const char pipeline_text[] =
    "longhaul: pipeline/1\n"
    "time_unit: ms\n"
    "microbatches: 2\n"
    "devices: 4\n"
    "uniform: {placement: ud, F: 1, D: 1, W: 1}\n"
    "links:\n"
    "  - {from: 0, to: 1, latency: 1, transfer: 1}\n"
    "  - {from: 1, to: 2, latency: 1, name: west>east}\n"
    "  - {from: 2, to: 1, latency: 1, name: east>west}\n";

static lh_status parse(const char *text, size_t len, lh_events **out,
                       lh_error *err)
{
    return lhi_events_parse(text, len, "events.yaml", out, err);
}

FUZZ_ROUND_TRIP(read_twice, lh_events, parse, lhi_events_format, lh_events_free)

/* Checks the event timeline: state 0 has no slowdown, and every event's steps
 * map to valid states. */
static void look(const lh_event_timeline *course, const lh_events *events)
{
    uint32_t n = lh_event_timeline_n_states(course);
    REQUIRE(lh_event_timeline_slow_components(course, 0, NULL, 0) == 0,
            "state 0 is slow");
    for (uint32_t i = 0; i < events->n_events; i++) {
        const lh_event *e = &events->events[i];
        uint32_t first =
            lh_event_timeline_state(course, (uint64_t)e->first_step);
        REQUIRE(first > 0 && first < n, "state %u", first);
        REQUIRE(lh_event_timeline_slow_components(course, first, NULL, 0) > 0,
                "nothing is slow");
        REQUIRE(lh_event_timeline_state(course, (uint64_t)e->end_step) < n,
                "no such state");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_events *events = read_twice((const char *)data, size);
    lh_pipeline *p = NULL;
    lh_event_timeline *course = NULL;
    lh_error err = {0};
    if (!events)
        return 0;
    MUST(lh_pipeline_parse(pipeline_text, sizeof pipeline_text - 1, "p", &p,
                           &err),
         err);
    lh_status status = lh_event_timeline_make(p, events, NULL, &course, &err);
    if (status == LH_OK)
        look(course, events);
    else
        fuzz_refused(status, &err, course);
    lh_event_timeline_free(course);
    lh_pipeline_free(p);
    lh_events_free(events);
    return 0;
}
