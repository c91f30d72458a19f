/* SPDX-License-Identifier: Apache-2.0 */
/* Uses the installed library: reads a pipeline, generates and simulates a
 * schedule, and prints its makespan. */
#include <longhaul/check.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/simulate.h>

#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    lh_error err;
    lh_pipeline *pipeline;
    lh_schedule *schedule;
    lh_timeline *timeline;
    if (argc != 2 || lh_pipeline_read(argv[1], &pipeline, &err) ||
        lh_method_run("zb-h1", pipeline, NULL, &schedule, NULL, &err) ||
        lh_simulate(pipeline, schedule, NULL, &timeline, &err)) {
        fprintf(stderr, "%s\n", argc == 2 ? err.text : "usage: tour PIPELINE");
        return 1;
    }
    printf("%" PRId64 " ns\n", lh_timeline_makespan(timeline));
    lh_timeline_free(timeline);
    lh_schedule_free(schedule);
    lh_pipeline_free(pipeline);
    return 0;
}
