/* SPDX-License-Identifier: Apache-2.0 */
/* Plans jobs for published runs and compares the predictions with the
 * measurements.
 *
 *     validate-published [--check PAGE | --write PAGE | --job N |
 *                         --fit [--iterations N]] [FOLDER]
 *
 * FOLDER contains megatron-bridge/, meta/, experts/, mlperf/, torchtitan/,
 * llm-foundry/, reports/ and vtrain/ (default bench/data). Each run becomes a
 * job file with a fixed layout, planned as by `longhaul plan`; --job prints the
 * job of row N of all files, counted from 0. Runs that a job cannot express are
 * listed with the reason.
 * --write writes the results to PAGE (docs/validation.md), between the two
 * lines that begin with "<!-- validate-published"; --check fails if PAGE
 * differs from the current results. Both fail if the errors in
 * lh_find_validated_runs() differ from the results. Every comparison fails if a
 * layout chosen from a group is more than 2 % slower than the fastest measured,
 * or if a run that ran out of memory is predicted to leave more than 3 GiB
 * free.
 * --fit refits the constants to the runs not held out, starting at the current
 * values, and prints them with the means of both halves; it stops after 80
 * steps for dense models and 80 for experts unless --iterations is given. */
#define _POSIX_C_SOURCE 200809L
#include "page_section.h"
#include "published.h"

#include <longhaul/experimental/plan.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KINDS = 16 };

/* Predicts the rows. Equal jobs of several releases are planned once. */
static bool predict_rows(const published_set *set, const fitted *by,
                         predicted *rows, uint32_t *n)
{
    static char texts[MAX_PUBLISHED][JOB_TEXT];

    *n = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        predicted *one = &rows[*n];
        uint32_t k = 0;

        if (set->runs[i].exclusion_reason)
            continue;
        *one = (predicted){.run = &set->runs[i]};
        published_job(one->run, by, false, texts[*n]);
        while (k < *n && strcmp(texts[k], texts[*n]) != 0)
            k++;
        if (k < *n)
            one->by_us = rows[k].by_us;
        else if (!published_predict(one->run, by, &one->by_us))
            return false;
        one->error = one->by_us.seconds / one->run->measured_s - 1;
        ++*n;
    }
    return true;
}

static const char *precision_of(const published *run)
{
    /* release 25.09 lacks a precision */
    return run->precision[0] ? run->precision : "FP8";
}

static void print_row(const predicted *r, bool markdown, FILE *to)
{
    const published *run = r->run;
    char layout[96];

    published_layout(run, layout, sizeof layout);
    fprintf(to,
            markdown ? "| %s | %s | %s %s | %u | %s | %.2f | %.2f | %+.1f %% | "
                       "%.0f of %.0f%s | %s |\n"
                     : "%-8s %-22s %-5s %-6s %5u %-34s %7.2f %7.2f %+6.1f%% "
                       "%4.0f/%-4.0f%s %s\n",
            run->release, run->model, run->system, precision_of(run), run->gpus,
            layout, run->measured_s, r->by_us.seconds, 100 * r->error,
            r->by_us.peak_bytes / 0x1p30, r->by_us.usable_bytes / 0x1p30,
            r->by_us.exceeds_memory ? ", refused" : "",
            run->held_out ? "held out" : "fitted");
}

/* Mean errors over a group of rows. */
typedef struct mean {
    uint32_t n;
    double percent, worst;
} mean;

/* The model kinds whose errors are stated. */
enum { DENSE, EXPERTS, HYBRID, N_MODEL_KINDS };

static int kind_of(const published *run)
{
    return run->hybrid ? HYBRID : run->moe ? EXPERTS : DENSE;
}

static mean mean_of(const predicted *rows, uint32_t n, int kind, bool held_out)
{
    mean m = {0};
    double sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (kind_of(rows[i].run) != kind || rows[i].run->held_out != held_out)
            continue;
        m.n++;
        sum += 100 * fabs(rows[i].error);
        m.worst = fmax(m.worst, 100 * fabs(rows[i].error));
    }
    m.percent = m.n ? sum / m.n : 0;
    return m;
}

static void print_means(const predicted *rows, uint32_t n, bool markdown,
                        FILE *to)
{
    if (markdown)
        fputs("| runs | fitted half: runs, mean, worst | held-out half: runs, "
              "mean, worst |\n| --- | --- | --- |\n",
              to);
    for (int kind = 0; kind < N_MODEL_KINDS; kind++) {
        static const char *const names[] = {"dense", "experts", "hybrid"};
        mean f = mean_of(rows, n, kind, false),
             h = mean_of(rows, n, kind, true);

        fprintf(to, markdown ? "| %s | " : "%-8s fitted ", names[kind]);
        if (f.n > 0)
            fprintf(to, "%u, %.1f %%, %.1f %%", f.n, f.percent, f.worst);
        else
            fputs("none", to);
        fprintf(to,
                markdown ? " | **%u, %.1f %%, %.1f %%** |\n"
                         : "; held out %u, %.1f %%, %.1f %%\n",
                h.n, h.percent, h.worst);
    }
}

/* Errors of one kind's held-out runs, and the range of these runs. */
typedef struct kind_errors {
    const lh_validated_runs *of;
    double sum, worst;
    uint32_t n, gpus_least, gpus_most, sequence_least, sequence_most;
    char gpu_types[200]; /* each type of the runs once: "a, b" */
} kind_errors;

static kind_errors kinds[MAX_KINDS];

/* Checks whether the list "a, b" has an entry. */
static bool has_entry(const char *list, const char *entry)
{
    char one[100], all[260];

    snprintf(one, sizeof one, ", %s,", entry);
    snprintf(all, sizeof all, ", %s,", list);
    return strstr(all, one) != NULL;
}

/* Extends the range of a kind's runs by the run of a job. */
static void add_range(const lh_job *job, kind_errors *kind)
{
    const lh_gpu *gpu = &job->datacenters[0].gpu;
    const char *type = gpu->preset ? gpu->preset : gpu->name;
    const uint32_t gpus = job->n_gpus, sequence = job->training.sequence;
    const size_t used = strlen(kind->gpu_types);

    kind->gpus_least =
        !kind->n || gpus < kind->gpus_least ? gpus : kind->gpus_least;
    kind->gpus_most = gpus > kind->gpus_most ? gpus : kind->gpus_most;
    kind->sequence_least = !kind->n || sequence < kind->sequence_least
                               ? sequence
                               : kind->sequence_least;
    kind->sequence_most =
        sequence > kind->sequence_most ? sequence : kind->sequence_most;
    if (!has_entry(kind->gpu_types, type))
        snprintf(kind->gpu_types + used, sizeof kind->gpu_types - used, "%s%s",
                 used ? ", " : "", type);
}

/* Checks whether the library states the range of the runs of a kind. */
static bool is_range_stated(const kind_errors *kind)
{
    const lh_validated_runs *of = kind->of;
    char types[200];
    bool all = strlen(of->gpu_types) == strlen(kind->gpu_types);

    snprintf(types, sizeof types, "%s", kind->gpu_types);
    for (char *save = NULL, *type = strtok_r(types, ", ", &save); type;
         type = strtok_r(NULL, ", ", &save))
        all = all && has_entry(of->gpu_types, type);
    return all && of->gpus_least == kind->gpus_least &&
           of->gpus_most == kind->gpus_most &&
           of->sequence_least == kind->sequence_least &&
           of->sequence_most == kind->sequence_most;
}

bool published_add_accuracy(const char *job_text, double error)
{
    lh_job *job = NULL;
    lh_error err;
    uint32_t i = 0;

    if (lh_job_parse(job_text, strlen(job_text), "published", NULL, &job,
                     &err) != LH_OK) {
        fprintf(stderr, "validate-published: %s\n", err.text);
        return false;
    }
    const lh_validated_runs *of = lh_find_validated_runs(job);
    while (i < MAX_KINDS && kinds[i].of && kinds[i].of != of)
        i++;
    if (!of || i == MAX_KINDS) {
        fprintf(stderr,
                "validate-published: lh_find_validated_runs() has no "
                "errors for a held-out run:\n%s",
                job_text);
        lh_job_free(job);
        return false;
    }
    kinds[i].of = of;
    add_range(job, &kinds[i]);
    kinds[i].sum += 100 * fabs(error);
    kinds[i].worst = fmax(kinds[i].worst, 100 * fabs(error));
    kinds[i].n++;
    lh_job_free(job);
    return true;
}

static bool is_rounded(double stored, double exact)
{
    return fabs(stored - exact) <= 0.05 + 1e-9;
}

/* Adds the errors of the held-out runs whose jobs have no options of their
 * program. Equal jobs of several releases are planned once. */
static bool add_plain_accuracy(const predicted *rows, uint32_t n)
{
    static char texts[MAX_PUBLISHED][JOB_TEXT];
    static double seconds[MAX_PUBLISHED];

    for (uint32_t i = 0; i < n; i++) {
        const published *run = rows[i].run;
        uint32_t k = 0;

        texts[i][0] = '\0';
        if (!run->held_out)
            continue;
        published_job(run, NULL, true, texts[i]);
        while (strcmp(texts[k], texts[i]) != 0)
            k++;
        if (k == i && !published_seconds(run, NULL, &seconds[i]))
            return false;
        seconds[i] = seconds[k];
        if (!published_add_accuracy(texts[i], seconds[i] / run->measured_s - 1))
            return false;
    }
    return true;
}

/* Checks the errors that plans print against those of the held-out runs. */
static bool check_accuracy(const predicted *rows, uint32_t n)
{
    static char text[JOB_TEXT];
    const fitted by = published_fitted();
    bool ok = true;

    for (uint32_t i = 0; i < n; i++) {
        if (!rows[i].run->held_out)
            continue;
        published_job(rows[i].run, &by, false, text);
        if (!published_add_accuracy(text, rows[i].error))
            return false;
    }
    if (!add_plain_accuracy(rows, n))
        return false;
    for (uint32_t i = 0; i < MAX_KINDS && kinds[i].of; i++) {
        const kind_errors *k = &kinds[i];
        double average = k->sum / k->n;

        if (k->n == k->of->n && is_rounded(k->of->mean_percent, average) &&
            is_rounded(k->of->worst_percent, k->worst) && is_range_stated(k))
            continue;
        fprintf(stderr,
                "validate-published: %s: the library states %u runs, %.1f %%, "
                "%.1f %%; now %u, %.2f %%, %.2f %%, %s, %u to %u GPUs, %u to "
                "%u tokens\n",
                k->of->kind, k->of->n, k->of->mean_percent,
                k->of->worst_percent, k->n, average, k->worst, k->gpu_types,
                k->gpus_least, k->gpus_most, k->sequence_least,
                k->sequence_most);
        ok = false;
    }
    return ok;
}

/* Prints the runs excluded for one reason and model, together with the first.
 */
static void print_equal_exclusions(const published_set *set, uint32_t first,
                                   bool *printed, FILE *to)
{
    const published *a = &set->runs[first];
    const char *release = "";

    fprintf(to, "%s: %s", a->model, a->exclusion_reason);
    for (uint32_t i = first; i < set->n; i++) {
        const published *b = &set->runs[i];

        if (!b->exclusion_reason ||
            strcmp(a->exclusion_reason, b->exclusion_reason) != 0 ||
            strcmp(a->model, b->model) != 0)
            continue;
        printed[i] = true;
        if (strcmp(release, b->release) != 0)
            fprintf(to, "; %s", b->release);
        fprintf(to, " %s %s", b->system, precision_of(b));
        release = b->release;
    }
    fputc('\n', to);
}

/* Checks whether a row belongs to MLPerf's runs on row `of`'s system. */
static bool is_same_series(const predicted *r, const predicted *of)
{
    return strncmp(r->run->release, "MLPerf", 6) == 0 &&
           strncmp(of->run->release, "MLPerf", 6) == 0 &&
           strcmp(r->run->system, of->run->system) == 0;
}

/* Prints, for each system of MLPerf's runs, the errors with the fewest and with
 * the most GPUs, and the range of all errors. */
static void print_scales(const predicted *rows, uint32_t n, bool markdown,
                         FILE *to)
{
    fputs(markdown ? "\n| MLPerf runs on | runs | GPUs | error with the fewest "
                     "| with the most | range of errors, points |\n"
                     "| --- | --- | --- | --- | --- | --- |\n"
                   : "\n",
          to);
    for (uint32_t i = 0; i < n; i++) {
        const predicted *few = &rows[i], *many = &rows[i];
        double least = INFINITY, most = -INFINITY;
        uint32_t of = 0, first = n;

        for (uint32_t k = 0; k < n; k++) {
            if (!is_same_series(&rows[k], &rows[i]))
                continue;
            first = k < first ? k : first;
            of++;
            few = rows[k].run->gpus < few->run->gpus ? &rows[k] : few;
            many = rows[k].run->gpus > many->run->gpus ? &rows[k] : many;
            least = fmin(least, rows[k].error);
            most = fmax(most, rows[k].error);
        }
        if (first != i)
            continue;
        fprintf(to,
                markdown ? "| %s | %u | %u to %u | %+.1f %% | %+.1f %% | %.1f "
                           "|\n"
                         : "MLPerf %-5s %u runs, %u to %u GPUs: %+.1f %% to "
                           "%+.1f %%, range %.1f points\n",
                rows[i].run->system, of, few->run->gpus, many->run->gpus,
                100 * few->error, 100 * many->error, 100 * (most - least));
    }
}

/* Prints all results. Returns false after printing an error if a choice among
 * layouts is bad. */
static bool print_all(const published_set *set, const predicted *rows,
                      uint32_t n, bool markdown, FILE *to)
{
    static bool printed[MAX_PUBLISHED];
    uint32_t refused = 0;
    bool ok;

    print_means(rows, n, markdown, to);
    published_models(rows, n, markdown, to);
    ok = published_choices(rows, n, markdown, to);
    print_scales(rows, n, markdown, to);
    fputs(markdown
              ? "\n| release | model | system | GPUs | layout | measured, s | "
                "predicted, s | error | memory, GiB | half |\n"
                "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- "
                "|\n"
              : "\n",
          to);
    for (uint32_t i = 0; i < n; i++) {
        print_row(&rows[i], markdown, to);
        refused += rows[i].by_us.exceeds_memory;
    }
    fprintf(to,
            "\n%u of these %u runs are rejected for lack of memory. The other "
            "%u of %u published runs cannot be written as a job:\n\n",
            refused, n, set->n - n, set->n);
    memset(printed, 0, sizeof printed);
    for (uint32_t i = 0; i < set->n; i++) {
        if (!set->runs[i].exclusion_reason || printed[i])
            continue;
        fputs(markdown ? "* " : "", to);
        print_equal_exclusions(set, i, printed, to);
    }
    return ok;
}

static int print_job(const published_set *set, const char *folder, long job)
{
    char text[JOB_TEXT];

    if (job >= (long)set->n)
        return !published_torchtitan_job(folder, job - (long)set->n);
    if (set->runs[job].exclusion_reason) {
        fprintf(stderr,
                "validate-published: row %ld cannot be written as a job: %s\n",
                job, set->runs[job].exclusion_reason);
        return 1;
    }
    const fitted by = published_fitted();
    published_job(&set->runs[job], &by, false, text);
    fputs(text, stdout);
    return 0;
}

/* Prints the runs of all programs in a folder, and the goals. */
static bool print_programs(const published_set *set, const predicted *rows,
                           uint32_t n, bool markdown, const char *folder,
                           FILE *to)
{
    titan_errors titan = {0};
    bool ok = print_all(set, rows, n, markdown, to);

    ok = published_torchtitan(folder, &titan, to) && ok;
    ok = published_foundry(folder, to) && ok;
    ok = published_reports(folder, to) && ok;
    published_goals(rows, n, &titan, to);
    return ok;
}

static bool update_page(const published_set *set, const predicted *rows,
                        uint32_t n, const page_arguments *on)
{
    char *made = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&made, &len);
    bool ok = false;

    if (!to)
        return false;
    ok = print_programs(set, rows, n, true, on->folder, to) &&
         check_accuracy(rows, n);
    if (fclose(to) == 0 && ok)
        ok = page_part("validate-published", on->page, on->write,
                       (page_tolerance){1, 1}, made);
    free(made);
    return ok;
}

/* Parsed command line. */
typedef struct arguments {
    page_arguments on;
    bool fit;
    uint32_t iterations;
    long job;
} arguments;

static bool read_arguments(int argc, char **argv, arguments *a)
{
    *a = (arguments){
        .on = {.folder = "bench/data"}, .job = -1, .iterations = 80};
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;

        if (!strcmp(argv[i], "--fit")) {
            a->fit = true;
        } else if (!strcmp(argv[i], "--iterations") && more) {
            a->iterations = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--job") && more) {
            a->job = strtol(argv[++i], NULL, 10);
        } else if (!page_argument(argc, argv, &i, &a->on)) {
            fprintf(stderr, "usage: validate-published [--check PAGE | "
                            "--write PAGE | --job N | --fit [--iterations N]] "
                            "[FOLDER]\n");
            return false;
        }
    }
    return true;
}

static void print_fitted(const fitted *by)
{
    printf("overlap: {tensor: %.3f}\n", by->tensor_overlap);
    printf("experts_efficiency %.3f\nfused_experts_efficiency %.3f\n",
           by->experts, by->fused_experts);
    printf("dispatch_ns %.0f\nexpert_ns %.0f\n", by->dispatch_ms * 1e6,
           by->expert_ms * 1e6);
    printf("fp8, times what presets say: Hopper %.3f, B200 and GB200 %.3f, "
           "B300 and GB300 %.3f\n",
           by->fp8[0], by->fp8[1], by->fp8[2]);
}

static bool refit(const published_set *set, uint32_t iterations,
                  predicted *rows)
{
    fitted by = published_fitted();
    uint32_t n = 0;

    if (!published_fit(set, iterations, &by) ||
        !predict_rows(set, &by, rows, &n))
        return false;
    print_fitted(&by);
    print_means(rows, n, false, stdout);
    return true;
}

int main(int argc, char **argv)
{
    static published_set set;
    static predicted rows[MAX_PUBLISHED];
    const fitted by = published_fitted();
    arguments a;
    uint32_t n = 0;

    if (!read_arguments(argc, argv, &a))
        return 2;
    if (!published_read(a.on.folder, &set))
        return 1;
    if (a.job >= 0)
        return print_job(&set, a.on.folder, a.job);
    if (a.fit)
        return !refit(&set, a.iterations, rows);
    if (!predict_rows(&set, &by, rows, &n))
        return 1;
    if (a.on.page)
        return !update_page(&set, rows, n, &a.on);
    return !print_programs(&set, rows, n, false, a.on.folder, stdout);
}
