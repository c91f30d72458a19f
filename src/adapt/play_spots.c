/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines under the present assignment of hosts and layers. */
#include "adapt/play_own.h"

#include "course/course.h"
#include "pipe/pipeline_own.h"
#include "places/places_own.h"

#include <stdlib.h>
#include <string.h>

static lh_status copy_numbers(const uint32_t *from, uint32_t n, uint32_t **out,
                              lh_error *err)
{
    if (!from)
        return LH_OK;
    if (!(*out = calloc(n, sizeof **out)))
        return lhi_fail_nomem(err);
    memcpy(*out, from, n * sizeof *from);
    return LH_OK;
}

lh_status lhi_spot_add(lhi_playing *p, const uint32_t *hosts,
                       const uint32_t *numbers, lh_error *err)
{
    uint32_t states = lh_course_n_states(p->course);
    size_t n = (size_t)p->n_spots + 1;
    lhi_spot *more = realloc(p->spots, n * sizeof *more);
    if (!more)
        return lhi_fail_nomem(err);
    p->spots = more;
    lhi_spot *spot = &more[p->n_spots++];
    *spot = (lhi_spot){.pipelines = calloc(states, sizeof *spot->pipelines),
                       .draws = calloc(states, sizeof *spot->draws)};
    if (!spot->pipelines || !spot->draws)
        return lhi_fail_nomem(err);
    if (hosts)
        LHI_TRY(copy_numbers(hosts, lh_places_n_hosts(p->course->places),
                             &spot->hosts, err));
    return copy_numbers(numbers, p->course->base->n_chunks, &spot->numbers,
                        err);
}

void lhi_spots_free(lhi_playing *p)
{
    uint32_t states = lh_course_n_states(p->course);
    for (uint32_t i = 0; i < p->n_spots; i++) {
        lhi_spot *spot = &p->spots[i];
        for (uint32_t s = 0; s < states; s++) {
            if (spot->pipelines)
                lh_pipeline_free(spot->pipelines[s]);
            if (spot->draws)
                lhi_jitter_draws_free(spot->draws[s]);
        }
        free(spot->pipelines);
        free(spot->draws);
        free(spot->hosts);
        free(spot->numbers);
    }
    free(p->spots);
}

lh_status lhi_spot_need(lhi_playing *p, uint32_t i, uint32_t state,
                        lh_error *err)
{
    lhi_spot *spot = &p->spots[i];
    if (!spot->pipelines[state])
        LHI_TRY(lh_course_pipeline_in(p->course, state, spot->hosts,
                                      &spot->pipelines[state], err));
    if (p->jitter && !spot->draws[state])
        return lhi_jitter_draws_make(spot->pipelines[state], p->jitter,
                                     &spot->draws[state], err);
    return LH_OK;
}

lh_status lhi_spot_share(const lhi_playing *p, uint32_t spot,
                         const lh_pipeline *pipeline, lh_pipeline **out,
                         lh_error *err)
{
    const uint32_t *numbers = p->spots[spot].numbers;
    if (!numbers)
        return lhi_pipeline_copy(pipeline, out, err);
    return lh_layers_pipeline(p->layers, pipeline, numbers, out, err);
}
