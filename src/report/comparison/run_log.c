/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the iterations in a run's log. */
#include "report/comparison/run_log.h"
#include "base/input_limits.h"
#include "base/sort.h"
#include "base/text.h"

#include <longhaul/experimental/trace_compare.h>

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Parses one line in a run's log into *out; false if it describes no
 * iteration. */
static bool read_line(const char *line, size_t len, lh_logged_iteration *out)
{
    json_t *j = json_loadb(line, len, 0, NULL);
    json_t *step = json_object_get(j, "step");
    json_t *seconds = json_object_get(j, "seconds");
    double s = json_number_value(seconds);
    bool good = json_is_integer(step) && json_integer_value(step) >= 0 &&
                json_is_number(seconds) && s >= 0 && s < 9e6;
    if (good)
        *out = (lh_logged_iteration){(uint64_t)json_integer_value(step),
                                     llround(s * 1e9)};
    json_decref(j);
    return good;
}

/* The last run's iterations. */
typedef struct iterations {
    lh_logged_iteration *all;
    uint32_t n, room;
} iterations;

/* Appends an iteration; a step number that does not increase starts a new run
 * and discards the previous one. */
static lh_status add_iteration(iterations *x, lh_logged_iteration one,
                               lh_error *err)
{
    /* Runs append to the log: a smaller step number starts another run. */
    if (x->n && one.step <= x->all[x->n - 1].step)
        x->n = 0;
    if (x->n == x->room) {
        uint32_t more = x->room ? 2 * x->room : 64;
        lh_logged_iteration *grown =
            more > x->room ? realloc(x->all, more * sizeof *grown) : NULL;
        if (!grown)
            return lhi_fail_nomem(err);
        x->all = grown;
        x->room = more;
    }
    x->all[x->n++] = one;
    return LH_OK;
}

/* Parses a run's log text and keeps the last run's iterations. LH_EINPUT: a
 * line is too long or is no iteration record, or there is none. */
static lh_status read_lines(const char *text, size_t len, const char *name,
                            iterations *x, lh_error *err)
{
    const char *end = text + len;
    uint32_t number = 1;
    LHI_TRY(lhi_input_check_size(len, name, LHI_INPUT_LOG, err));
    for (const char *line = text; line < end; number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        lh_logged_iteration one;
        if (stop - line > LHI_LINE_BYTES)
            return lhi_fail(err, LH_EINPUT,
                            "%s:%" PRIu32 ": a line exceeds %d bytes", name,
                            number, LHI_LINE_BYTES);
        if (!read_line(line, (size_t)(stop - line), &one))
            return lhi_fail(err, LH_EINPUT,
                            "%s:%" PRIu32 ": not an iteration record of 'train "
                            "--log'",
                            name, number);
        LHI_TRY(add_iteration(x, one, err));
        line = stop + (stop < end);
    }
    if (x->n == 0)
        return lhi_fail(err, LH_EINPUT, "%s: contains no iteration", name);
    return LH_OK;
}

/* Computes the run's median iteration time in ns into *out_ns. */
static lh_status find_median(const iterations *x, int64_t *out_ns,
                             lh_error *err)
{
    uint32_t n = x->n;
    int64_t *ns = calloc(n, sizeof *ns);
    if (!ns)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++)
        ns[i] = x->all[i].ns;
    *out_ns = lhi_median_ns(ns, n);
    free(ns);
    return LH_OK;
}

lh_status lhi_run_log_parse(const char *text, size_t len, const char *name,
                            lh_run_log **out, lh_error *err)
{
    iterations x = {0};
    int64_t median_ns = 0;
    lh_run_log *log = NULL;
    lh_status status = read_lines(text, len, name, &x, err);
    if (status == LH_OK)
        status = find_median(&x, &median_ns, err);
    if (status == LH_OK && !(log = malloc(sizeof *log)))
        status = lhi_fail_nomem(err);
    if (status != LH_OK) {
        free(x.all);
        return status;
    }
    *log = (lh_run_log){
        .n_iterations = x.n, .iterations = x.all, .median_ns = median_ns};
    *out = log;
    return LH_OK;
}

lh_status lh_run_log_read(const char *path, lh_run_log **out, lh_error *err)
{
    char *text;
    size_t len;
    LHI_TRY(lhi_input_read(path, LHI_INPUT_LOG, &text, &len, err));
    lh_status status = lhi_run_log_parse(text, len, path, out, err);
    lh_text_free(text);
    return status;
}

/* Frees a run log; ignores NULL. */
void lh_run_log_free(lh_run_log *log)
{
    if (!log)
        return;
    free((lh_logged_iteration *)log->iterations);
    free(log);
}
