/* SPDX-License-Identifier: Apache-2.0 */
/* The iterations of a run's log against their prediction. */
#define _POSIX_C_SOURCE 200809L
#include "difference.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct cli_logged logged;

/* A line of the log; false: it is none. */
static bool read_line(const char *line, logged *out)
{
    json_t *j = json_loads(line, 0, NULL);
    json_t *step = json_object_get(j, "step");
    json_t *seconds = json_object_get(j, "seconds");
    double s = json_number_value(seconds);
    bool good = json_is_integer(step) && json_integer_value(step) >= 0 &&
                json_is_number(seconds) && s >= 0 && s < 9e6;
    if (good)
        *out = (logged){(uint64_t)json_integer_value(step), llround(s * 1e9)};
    json_decref(j);
    return good;
}

static lh_status add(cli *c, cli_difference *d, const logged *one,
                     uint32_t *room)
{
    /* Runs append: where steps begin anew, so does another run. */
    if (d->n_iterations && one->step <= d->iterations[d->n_iterations - 1].step)
        d->n_iterations = 0;
    if (d->n_iterations == *room) {
        uint32_t more = *room ? 2 * *room : 64;
        logged *grown =
            more > *room ? realloc(d->iterations, more * sizeof *grown) : NULL;
        if (!grown)
            return cli_no_memory(c);
        d->iterations = grown;
        *room = more;
    }
    d->iterations[d->n_iterations++] = *one;
    return LH_OK;
}

static lh_status read_lines(cli *c, FILE *file, const char *path,
                            cli_difference *d)
{
    char *line = NULL;
    size_t size = 0;
    uint32_t room = 0, number = 0;
    lh_status status = LH_OK;
    while (status == LH_OK && getline(&line, &size, file) >= 0) {
        logged one;
        number++;
        status = read_line(line, &one)
                     ? add(c, d, &one, &room)
                     : cli_error(c, LH_EINPUT,
                                 "%s:%" PRIu32 ": not an iteration as 'train "
                                 "--log' writes them",
                                 path, number);
    }
    free(line);
    if (status == LH_OK && ferror(file))
        return cli_error(c, LH_EIO, "%s: %s", path, strerror(errno));
    if (status == LH_OK && d->n_iterations == 0)
        return cli_error(c, LH_EINPUT, "%s: has no iteration", path);
    return status;
}

static int compare_ns(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static lh_status take_median(cli *c, cli_difference *d)
{
    uint32_t n = d->n_iterations;
    int64_t *ns = calloc(n, sizeof *ns);
    if (!ns)
        return cli_no_memory(c);
    for (uint32_t i = 0; i < n; i++)
        ns[i] = d->iterations[i].ns;
    qsort(ns, n, sizeof *ns, compare_ns);
    d->median_ns = n % 2 ? ns[n / 2] : (ns[n / 2 - 1] + ns[n / 2]) / 2;
    free(ns);
    return LH_OK;
}

lh_status cli_difference_log(cli *c, const char *path, cli_difference *d)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return cli_error(c, LH_EIO, "%s: %s", path, strerror(errno));
    lh_status status = read_lines(c, file, path, d);
    fclose(file);
    return status == LH_OK ? take_median(c, d) : status;
}

void cli_difference_fini(cli_difference *d)
{
    free(d->iterations);
    d->iterations = NULL;
}
