/* SPDX-License-Identifier: Apache-2.0 */
/* steady: every microbatch adds the busiest device's work, and no more; under
 * tight memory it lowers its memory until it fits. */
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/simulate.h>

enum { MS = 1000000 };

/* Returns the makespan of the method's schedule; 0: it does not fit. */
static int64_t takes(const char *method, const lh_pipeline *p)
{
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_error err = {0};
    int64_t ns = 0;
    if (lh_method_run(method, p, NULL, &s, NULL, &err) != LH_OK)
        return 0;
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    CHECK(lh_timeline_fits(t, NULL));
    ns = lh_timeline_makespan(t);
    lh_timeline_free(t);
    lh_schedule_free(s);
    return ns;
}

static void each_microbatch_adds_the_same(void)
{
    static const char *const placements[] = {"ud", "wave", "loop"};
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t devices = 2; devices <= 10; devices += 2)
            for (int latency = 0; latency <= 40; latency += 20) {
                int64_t ns[2];
                for (uint32_t k = 0; k < 2; k++) {
                    lh_pipeline *p = uniform_make(
                        (uniform){placements[i], devices, k ? 90 : 60, 12, 12,
                                  12, latency ? 2 : 0, latency, 0, 0, NULL});
                    ns[k] = takes("steady", p);
                    lh_pipeline_free(p);
                }
                CHECK_INT(ns[1] - ns[0], (int64_t)30 * 36 * MS);
            }
}

/* A V across two datacenters, 48 ms apart, with this many bytes of memory; a
 * chunk uses 15 to 22. */
static lh_pipeline *tight_wave(int64_t room)
{
    enum { P = 8 };
    lh_chunk chunks[2 * P];
    lh_link links[2 * (P - 1)];
    int64_t limits[P];
    lh_pipeline *p = NULL;
    lh_error err = {0};
    for (uint32_t c = 0; c < 2 * P; c++)
        chunks[c] = (lh_chunk){.device = c < P ? c : 2 * P - 1 - c,
                               .f_ns = 18 * MS,
                               .d_ns = 20 * MS,
                               .w_ns = 19 * MS,
                               .mem_f = 15,
                               .mem_d = 7,
                               .mem_w = -22};
    for (uint32_t k = 0; k + 1 < P; k++) {
        int64_t far = k == P / 2 - 1 ? 48 * MS : MS;
        links[2 * k] = (lh_link){k, k + 1, far, 0, NULL};
        links[2 * k + 1] = (lh_link){k + 1, k, far, 0, NULL};
    }
    for (uint32_t k = 0; k < P; k++)
        limits[k] = room;
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = P,
                             .n_microbatches = 64,
                             .n_chunks = 2 * P,
                             .chunks = chunks,
                             .n_links = 2 * (P - 1),
                             .links = links,
                             .memory_limits = limits};
    CHECK_OK(lh_pipeline_make(&desc, &p, &err), err);
    return p;
}

static void it_keeps_within_memory(void)
{
    for (int64_t room = 170; room <= 200; room += 10) {
        lh_pipeline *p = tight_wave(room);
        int64_t steady = takes("steady", p), greedy = takes("greedy", p);
        CHECK_INT(takes("zb-v", p), 0);
        CHECK_MSG(steady > 0 && (double)steady * 1.07 < (double)greedy,
                  "room %ld: %ld, greedy %ld", (long)room, (long)steady,
                  (long)greedy);
        lh_pipeline_free(p);
    }
}

int main(void)
{
    RUN(each_microbatch_adds_the_same);
    RUN(it_keeps_within_memory);
    return test_summary();
}
