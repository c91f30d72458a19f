/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a trace with a later one, and a run's log, also when memory runs
 * out. */
#include "fail_alloc.h"
#include "report/comparison/run_log.h"
#include "small_trace.h"
#include "test.h"

#include <longhaul/experimental/trace_compare.h>

/* Shifts small_trace by `by_ns` from run `from` on. */
static void later(lh_trace *trace, lh_trace_run *runs, uint32_t from,
                  int64_t by_ns)
{
    *trace = small_trace;
    for (uint32_t i = 0; i < trace->n_runs; i++) {
        runs[i] = trace->runs[i];
        runs[i].start_ns += i >= from ? by_ns : 0;
        runs[i].end_ns += i >= from ? by_ns : 0;
    }
    trace->runs = runs;
    trace->makespan_ns += by_ns;
}

static void traces(void)
{
    lh_trace_run runs[64];
    lh_trace measured;
    lh_trace_difference d = {.n_passes = 77};
    lh_error err = {0};
    CHECK(small_trace.n_runs > 2 && small_trace.n_runs <= 64);
    later(&measured, runs, small_trace.n_runs - 1, 40);
    FAIL_EACH_ALLOC({
        status = lh_trace_compare(&small_trace, &measured, &d, &err);
        CHECK((status == LH_OK) == (d.n_passes != 77));
    });
    CHECK_INT(d.n_passes, small_trace.n_runs);
    CHECK_INT(d.n_only_predicted + d.n_only_measured, 0);
    CHECK_INT(d.measured_ns - d.predicted_ns, 40);
    CHECK_INT(d.worst_start_ns, 40);
    CHECK_STR(d.divergence, d.worst);
    CHECK_INT(d.divergence_ns,
              small_trace.runs[small_trace.n_runs - 1].start_ns);
    CHECK_INT(d.divergence_delay_ns, 40);
    CHECK_INT(d.messages.n, small_trace.n_messages);
    CHECK_INT(d.messages.predicted_ns, d.messages.measured_ns);

    lh_trace none = small_trace;
    none.n_runs = 0;
    d.n_passes = 77;
    CHECK_INT(lh_trace_compare(&small_trace, &none, &d, &err), LH_EINPUT);
    CHECK_INT(d.n_passes, 77);
}

static const char two_runs[] = "{\"step\": 0, \"seconds\": 9}\n"
                               "{\"step\": 1, \"seconds\": 9}\n"
                               "{\"step\": 0, \"seconds\": 0.5}\n"
                               "{\"step\": 1, \"seconds\": 0.25}\n"
                               "{\"step\": 2, \"seconds\": 2, \"loss\": 3}";

static void logs(void)
{
    lh_run_log *log;
    lh_error err = {0};
    FAIL_EACH_ALLOC({
        log = NULL;
        status = lhi_run_log_parse(two_runs, strlen(two_runs), "l", &log, &err);
        CHECK((status == LH_OK) == (log != NULL));
        if (log) {
            CHECK_INT(log->n_iterations, 3);
            CHECK_INT(log->iterations[1].ns, 250000000);
            CHECK_INT(log->median_ns, 500000000);
        }
        lh_run_log_free(log);
    });
    log = NULL;
    CHECK_INT(lhi_run_log_parse("", 0, "empty", &log, &err), LH_EINPUT);
    CHECK_STR(err.text, "empty: contains no iteration");
    static const char bad[] = "{\"step\": 0, \"seconds\": 9}\n\n";
    CHECK_INT(lhi_run_log_parse(bad, strlen(bad), "bad", &log, &err),
              LH_EINPUT);
    CHECK_HAS(err.text, "bad:2: ");
    CHECK(!log);
}

int main(void)
{
    RUN(traces);
    RUN(logs);
    return test_summary();
}
