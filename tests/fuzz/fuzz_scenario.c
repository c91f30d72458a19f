/* SPDX-License-Identifier: Apache-2.0 */
/* Input: an optical-network scenario. Small scenarios are run; the simulation
 * itself checks its invariants in every iteration. */
#include "fuzz.h"

#include "network/optical/scenario.h"

static bool is_small(const lh_scenario *s)
{
    uint64_t passes = 0;
    if (s->background.erlang > 0 || s->retry_ns < 1000000 ||
        s->slowest_mbps < 1000)
        return false;
    for (uint32_t j = 0; j < s->n_jobs; j++) {
        const lhi_chain *c = &s->jobs[j].chain;
        const lhi_replica_ring *ring = &s->jobs[j].ring;
        for (uint32_t i = 0; i < ring->n_chunks; i++)
            if (ring->gather_bits[i] > 10000000000 ||
                ring->reduce_bits[i] > 10000000000)
                return false;
        passes += (uint64_t)ring->n_nodes * ring->n_chunks * 2;
        if (lhi_optical_job_pipeline(&s->jobs[j]) || c->bits > 10000000000)
            return false;
        passes += (uint64_t)c->stages * c->microbatches * 2;
    }
    passes *= s->n_policies;
    passes *= s->iterations + 1;
    passes *= s->n_seeds;
    return passes < 3000 && s->network->k < 10;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_scenario *s = NULL;
    lh_optical *o = NULL;
    lh_error err = {0};
    lh_status status = lh_scenario_parse((const char *)data, size,
                                         "/nowhere/s.yaml", &s, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, s);
        return 0;
    }
    lh_optical_options options = {.size = sizeof options, .threads = 1};
    if (is_small(s)) {
        status = lh_optical_run_all(s, &options, &o, &err);
        if (status != LH_OK)
            fuzz_refused(status, &err, o);
    }
    if (o) {
        char *text = NULL;
        MUST(lh_optical_html(s, o, &text, NULL, &err), err);
        lh_text_free(text);
    }
    lh_optical_free(o);
    lh_scenario_free(s);
    return 0;
}
