/* SPDX-License-Identifier: Apache-2.0 */
/* Scripted schedule switches of a run: one schedule per method in turn, an
 * invalid one, and a rank killed in between. */
#ifndef TEST_SCRIPTED_SWITCHES_H
#define TEST_SCRIPTED_SWITCHES_H

#include "kill_sibling.h"
#include "scheduled.h"
#include "test.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>
#include <stdlib.h>

enum { MOST_METHODS = 24, MOST_LINKS = 16 };

/* --- schedules ------------------------------------------------------------ */

/* One schedule per method. */
typedef struct schedules {
    uint32_t n, n_ordered; /* total, with orders on links */
    const char *names[MOST_METHODS];
    lh_schedule *all[MOST_METHODS];
} schedules;

/* Copies the schedule and adds the links' FIFO orders from the simulator as
 * explicit ones. */
static inline lh_schedule *
with_orders(const lh_pipeline *p, const lh_schedule *s, lh_receives receives)
{
    lh_error err;
    lh_timeline *t = NULL;
    lh_schedule *out = NULL;
    const lh_sim_options sim = {
        .size = sizeof sim, .receives = receives, .override_receives = true};
    lh_link_order orders[8] = {{0}};
    lh_pass passes[8][64];
    const lh_pass *rows[8];
    uint32_t counts[8], n_orders = 0, n_messages;
    CHECK_OK(lh_simulate(p, s, &sim, &t, &err), err);
    const lh_message *m = lh_timeline_messages(t, &n_messages);
    /* In order of departure times; there are few. */
    for (int64_t last = -1;;) {
        int64_t next = INT64_MAX;
        for (uint32_t i = 0; i < n_messages; i++)
            if (m[i].depart_ns > last && m[i].depart_ns < next)
                next = m[i].depart_ns;
        if (next == INT64_MAX)
            break;
        for (uint32_t i = 0; i < n_messages; i++) {
            if (m[i].depart_ns != next || m[i].resource == LH_NONE)
                continue;
            const char *name = lh_timeline_resource_name(t, m[i].resource);
            uint32_t k = 0;
            while (k < n_orders && strcmp(orders[k].link, name) != 0)
                k++;
            if (k == n_orders)
                orders[n_orders++].link = name;
            orders[k].passes = passes[k];
            passes[k][orders[k].n_passes++] = m[i].producer;
        }
        last = next;
    }
    uint32_t n = lh_schedule_n_devices(s);
    for (uint32_t d = 0; d < n; d++)
        rows[d] = lh_schedule_order(s, d, &counts[d]);
    CHECK_OK(lh_schedule_make(n, rows, counts, n_orders, orders, &out, &err),
             err);
    lh_timeline_free(t);
    return out;
}

/* Creates a schedule by each applicable method; every third one has orders on
 * its links. */
static inline schedules all_schedules(const lh_pipeline *p,
                                      lh_receives receives)
{
    schedules s = {0};
    for (uint32_t i = 0; i < lh_n_methods() && s.n < MOST_METHODS; i++) {
        const char *name = lh_method_name(i);
        const lh_method_options how = {.size = sizeof how, .sub_blocks = 2};
        lh_schedule *made = NULL;
        if (lh_method_is_auto(name) ||
            lh_method_run(name, p, strcmp(name, "greedy") == 0 ? &how : NULL,
                          &made, NULL, NULL) != LH_OK)
            continue;
        if (s.n % 3 == 1) {
            lh_schedule *ordered = with_orders(p, made, receives);
            s.n_ordered += ordered && lh_schedule_n_link_orders(ordered) > 0;
            lh_schedule_free(made);
            made = ordered;
        }
        s.names[s.n] = name;
        s.all[s.n++] = made;
    }
    return s;
}

/* Frees the schedules. */
static inline void free_schedules(schedules *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        lh_schedule_free(s->all[i]);
}

/* --- script --------------------------------------------------------------- */

/* The script: proposals per step and counts of calls. */
typedef struct script {
    schedules own;
    uint32_t every; /* steps; 0: never */
    const lh_schedule *bad;
    uint64_t bad_step;
    uint32_t n_asked, n_told, stop_after;
    uint64_t last;
    bool kills, stops_now;
    const lh_exec_options *exec; /* NULL: defaults */
    bool paths;                  /* with another data path each time */
    bool delegated[MOST_LINKS];  /* delegated links of mixed paths */
    lh_reschedule given;
} script;

/* lh_train_options.reschedule: returns the next proposal, or NULL. */
static inline const lh_reschedule *next_schedule(void *of, uint64_t step)
{
    script *s = of;
    CHECK(s->n_asked == 0 || step == s->last + 1);
    s->n_asked++;
    s->last = step;
    if (s->kills && step == 2)
        kill_sibling();
    if (s->bad && step == s->bad_step) {
        s->given = (lh_reschedule){.size = sizeof s->given,
                                   .schedule = s->bad,
                                   .name = "bad",
                                   .why = "to see"};
        return &s->given;
    }
    if (!s->every || step % s->every)
        return NULL;
    uint32_t i = (uint32_t)(step / s->every) % s->own.n;
    s->given = (lh_reschedule){.size = sizeof s->given,
                               .schedule = s->own.all[i],
                               .name = s->own.names[i],
                               .why = "test",
                               .override_path = s->paths,
                               .path = (lh_data_path)(step * 5 % 7 % 3),
                               .delegated = s->delegated};
    for (uint32_t k = 0; k < MOST_LINKS; k++)
        s->delegated[k] = step >> k & 1;
    return &s->given;
}

/* lh_train_options.switched: counts the calls. */
static inline void told(void *of, const lh_switch *what)
{
    script *s = of;
    CHECK(what->to && what->why);
    s->n_told++;
}

static const char two[] =
    "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %d\ndevices: 2\n"
    "uniform: {placement: ud, F: 100, D: 100, W: 100}\n"
    "datacenters: {count: 2, latency: 50, transfer: 20}\n";

/* Creates a pipeline with two devices, one or two chunks each, and links with
 * two speeds. */
static inline lh_pipeline *pipeline_to_train(const char *placement,
                                             uint32_t microbatches)
{
    char text[512];
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: %d\n"
             "devices: 2\nuniform: {placement: %s, chunks_per_device: %d, "
             "F: 10, D: 12, W: 9, memory: {F: 1, W: -1}}\nlinks:\n"
             "  - {from: 0, to: 1, latency: 300, transfer: 40}\n"
             "  - {from: 1, to: 0, latency: 200, transfer: 60}\n",
             (int)microbatches, placement,
             strcmp(placement, "ud") == 0 ? 1 : 2);
    return pipeline_of(text);
}

/* Creates a two-device pipeline in two datacenters. */
static inline lh_pipeline *two_devices(int microbatches)
{
    char text[512];
    snprintf(text, sizeof text, two, microbatches);
    return pipeline_of(text);
}

#endif
