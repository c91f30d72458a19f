/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of hosts' places that are to leave their outputs alone. */
#ifndef UNTOUCHED_PLACES_H
#define UNTOUCHED_PLACES_H

#include "untouched_given.h"

static lh_status makes_places(bool bad)
{
    POISONED(lh_places *, out);
    POISONED(lh_pipeline *, at);
    const lh_places_options o = {.size = sizeof o,
                                 .n_replicas = bad ? 1000 : 2};
    lh_status status = CALL(lh_places_make(pipeline, &o, &out, &err), out);
    if (status != LH_OK)
        return status;
    status = CALL(lh_places_pipeline(out, NULL, NULL, &at, &err), at);
    if (status == LH_OK)
        lh_pipeline_free(at);
    lh_places_free(out);
    return status;
}

static lh_status moves_hosts(bool bad)
{
    POISONED(lh_exchange *, out);
    lh_places *places = NULL;
    const double slower[] = {1, bad ? 0 : 2};
    const lh_hosts_now now = {.size = sizeof now, .slower = slower};
    lh_status status = lh_places_make(pipeline, NULL, &places, &err);
    if (status == LH_OK)
        status = CALL(
            lh_places_exchange(places, &now, schedule, NULL, &out, &err), out);
    if (status == LH_OK)
        lh_exchange_free(out);
    lh_places_free(places);
    return status;
}

/* The link between two hosts is slow in the middle of it; they move. */
static lh_status plays_moving(bool bad)
{
    static const char *const link = "h0-h1";
    const lh_event e = {.from = 2,
                        .to = 20,
                        .n_links = 1,
                        .links = &link,
                        .latency_ns = bad ? -1 : 100000000,
                        .latency_times = 1,
                        .transfer_times = 1,
                        .slower = 1,
                        .device = LH_NONE,
                        .rank = LH_NONE};
    const lh_events events = {"events", 1, &e};
    const lh_places_options two = {.size = sizeof two, .n_replicas = 2};
    lh_places *places = NULL;
    lh_course *course = NULL;
    POISONED(lh_played *, out);
    lh_course_options o = {.size = sizeof o};
    const lh_adapt_play_options moving = {.size = sizeof moving,
                                          .exchange = true};
    lh_status status = lh_places_make(pipeline, &two, &places, &err);
    o.places = places;
    if (status == LH_OK)
        status = lh_course_make(pipeline, &events, &o, &course, &err);
    if (status == LH_OK)
        status = CALL(lh_adapt_play(course, schedule, &moving, 16, &out, &err),
                      out);
    if (status == LH_OK)
        lh_played_free(out);
    lh_course_free(course);
    lh_places_free(places);
    return status;
}

#endif
