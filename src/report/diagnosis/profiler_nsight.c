/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the output of `nsys export --type jsonlines` (older: json): one JSON
 * object per line, numbers mostly as texts, times in ns:
 *
 *     {"Type":59,"NvtxEvent":{"Timestamp":"27","EndTimestamp":"45",
 *      "Text":"PP:0F3","GlobalTid":"292568055813839"}}
 *     {"Type":48,"TraceProcessEvent":{"startNs":"28","endNs":"29",
 *      "correlationId":745,"globalTid":"292568055813839"}}
 *     {"Type":79,"CudaEvent":{"startNs":"31","endNs":"44","correlationId":745,
 *      "globalPid":"292568055152640","kernel":{"shortName":"316"}}}
 *     {"data":["[Unknown]",...]}  or  {"type":"String","id":"316","value":"x"}
 *
 * Names of kernels, and with TextId those of ranges, are numbers of strings,
 * which may follow the events. PyTorch's emit_nvtx() names operators
 * "aten::mm, seq = 12, op_id = 40". */
#include "report/diagnosis/profiler_internal.h"

#include "base/sort.h"
#include "report/diagnosis/line_stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* An NVTX range. */
typedef struct nvtx_range {
    int64_t start_ns, end_ns;
    uint64_t thread; /* prefix, process and thread: 16, 24 and 24 bits */
    char *text;      /* owned; NULL: string number `id` */
    int64_t id;
    size_t order;
} nvtx_range;

/* A kernel, copy or launch of a process, with the number of its name. */
typedef struct cuda_work {
    lhi_kernel kernel;
    uint32_t process;
    int64_t name; /* -1: none */
} cuda_work;

/* One export. */
typedef struct nsight_export {
    lhi_profiler *p;
    const char *name;
    uint64_t line;
    nvtx_range *ranges;
    size_t n_ranges, ranges_room;
    cuda_work *work;
    size_t n_work, work_room;
    char **strings; /* by number; NULL: absent */
    size_t n_strings, strings_room;
    uint64_t n_timed; /* ranges and GPU work with a time */
} nsight_export;

/* Frees the ranges, kernels and strings read from an export. */
static void export_fini(nsight_export *x)
{
    for (size_t i = 0; i < x->n_ranges; i++)
        free(x->ranges[i].text);
    for (size_t i = 0; i < x->n_strings; i++)
        free(x->strings[i]);
    free(x->ranges);
    free(x->work);
    free(x->strings);
}

/* --- values --------------------------------------------------------------- */

/* Reads the integer at `key`, which may be written as a text, into *out; false
 * if it is neither. */
static bool get_number(const json_t *event, const char *key, int64_t *out)
{
    const json_t *value = json_object_get(event, key);
    const char *text = json_string_value(value);
    char *end;
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    if (!text || !*text)
        return false;
    *out = strtoll(text, &end, 10);
    return *end == '\0';
}

/* Reads an event's times, in ns, at the keys `start` and `end`; false, and the
 * event counts as unreadable, if they are not times. */
static bool get_times(nsight_export *x, const json_t *event, const char *start,
                      const char *end, int64_t *start_ns, int64_t *end_ns)
{
    bool ok = get_number(event, start, start_ns) &&
              get_number(event, end, end_ns) && *start_ns >= 0 &&
              *start_ns <= LHI_MOST_NS && *end_ns >= *start_ns &&
              *end_ns - *start_ns <= LHI_LONGEST_NS;
    if (!ok)
        lhi_defect_add(x->p->remarks, LHI_REMARK_UNREAD, 1,
                       "%s:%" PRIu64 ": '%s' and '%s' are not times in ns",
                       x->name, x->line, start, end);
    x->n_timed += ok;
    return ok;
}

/* Reads an event's thread or process, with process number, at `key`; false, and
 * the event counts as unreadable, if it is not a number. */
static bool get_owner(nsight_export *x, const json_t *event, const char *key,
                      uint64_t *out)
{
    int64_t number = 0;
    bool ok = get_number(event, key, &number);
    if (!ok)
        lhi_defect_add(x->p->remarks, LHI_REMARK_UNREAD, 1,
                       "%s:%" PRIu64 ": '%s' is not a number", x->name, x->line,
                       key);
    *out = (uint64_t)number;
    return ok;
}

/* Copies a text into *out, which the caller frees. */
static lh_status copy_text(const char *text, char **out, lh_error *err)
{
    size_t len = strlen(text) + 1;
    *out = malloc(len);
    if (!*out)
        return lhi_fail_nomem(err);
    memcpy(*out, text, len);
    return LH_OK;
}

/* Stores string number `id` in the export's table, to which events refer.
 * Ignores values that are no string, and numbers out of range. */
static lh_status set_string(nsight_export *x, int64_t id, const json_t *value,
                            lh_error *err)
{
    enum { MAX_STRINGS = 1 << 24 };
    const char *text = json_string_value(value);
    if (!text || id < 0 || id >= MAX_STRINGS)
        return LH_OK;
    while (x->n_strings <= (size_t)id) {
        LHI_TRY(lhi_profiler_grow_array((void **)&x->strings, x->n_strings,
                                        &x->strings_room, sizeof *x->strings,
                                        err));
        x->strings[x->n_strings++] = NULL;
    }
    free(x->strings[id]);
    x->strings[id] = NULL;
    return copy_text(text, &x->strings[id], err);
}

/* Returns string number `id` from the export's table; "" if it is absent. */
static const char *get_string(const nsight_export *x, int64_t id)
{
    bool has = id >= 0 && (size_t)id < x->n_strings && x->strings[id];
    return has ? x->strings[id] : "";
}

/* --- lines ---------------------------------------------------------------- */

/* Adds an NVTX range (a thread's named time interval) to the export; skips
 * marks, which have no end. */
static lh_status parse_range(nsight_export *x, const json_t *event,
                             lh_error *err)
{
    nvtx_range r = {.id = -1, .order = x->n_ranges};
    const char *text = json_string_value(json_object_get(event, "Text"));
    if (!json_object_get(event, "EndTimestamp") ||
        (!text && !get_number(event, "TextId", &r.id)) ||
        !get_owner(x, event, "GlobalTid", &r.thread) ||
        !get_times(x, event, "Timestamp", "EndTimestamp", &r.start_ns,
                   &r.end_ns))
        return LH_OK;
    LHI_TRY(lhi_profiler_grow_array((void **)&x->ranges, x->n_ranges,
                                    &x->ranges_room, sizeof *x->ranges, err));
    if (text)
        LHI_TRY(copy_text(text, &r.text, err));
    x->ranges[x->n_ranges++] = r;
    return LH_OK;
}

/* Returns the process number in `global`, Nsight's number of a thread or
 * process, which also contains the host and thread numbers. */
static uint32_t process_of(uint64_t global)
{
    return (uint32_t)(global >> 24) & 0xffffff;
}

/* Adds a GPU kernel or copy, or with is_launch the CPU's call that launched
 * one, to the export; skips other CUDA events, such as synchronisations. */
static lh_status parse_cuda(nsight_export *x, const json_t *event,
                            bool is_launch, lh_error *err)
{
    const json_t *kernel = json_object_get(event, "kernel");
    bool is_copy = json_object_get(event, "memcpy") != NULL ||
                   json_object_get(event, "memset") != NULL;
    cuda_work w = {.name = -1};
    int64_t correlation = 0;
    uint64_t owner;
    if (!is_launch && !kernel && !is_copy)
        return LH_OK;
    if (!get_number(event, "correlationId", &correlation) || correlation < 0)
        correlation = 0;
    if ((is_launch && correlation == 0) ||
        !get_owner(x, event, is_launch ? "globalTid" : "globalPid", &owner) ||
        !get_times(x, event, "startNs", "endNs", &w.kernel.start_ns,
                   &w.kernel.end_ns))
        return LH_OK;
    if (kernel && !get_number(kernel, "shortName", &w.name))
        get_number(kernel, "demangledName", &w.name);
    w.process = process_of(owner);
    w.kernel.correlation = (uint64_t)correlation;
    w.kernel.is_launch = is_launch;
    w.kernel.is_copy = is_copy;
    LHI_TRY(lhi_profiler_grow_array((void **)&x->work, x->n_work, &x->work_room,
                                    sizeof *x->work, err));
    x->work[x->n_work++] = w;
    return LH_OK;
}

/* Stores the strings that a line defines: the export's whole string table, or
 * one entry in it. */
static lh_status parse_strings(nsight_export *x, const json_t *line,
                               lh_error *err)
{
    const json_t *data = json_object_get(line, "data");
    const char *type = json_string_value(json_object_get(line, "type"));
    int64_t id;
    for (size_t i = 0; i < json_array_size(data); i++)
        LHI_TRY(set_string(x, (int64_t)i, json_array_get(data, i), err));
    if (type && strcmp(type, "String") == 0 && get_number(line, "id", &id))
        return set_string(x, id, json_object_get(line, "value"), err);
    return LH_OK;
}

/* Parses one line in an export and adds its range, GPU work or strings; skips
 * lines with other events. */
static lh_status parse_line(nsight_export *x, const char *text, lh_error *err)
{
    static const char *const words[] = {"\"NvtxEvent\"", "\"CudaEvent\"",
                                        "\"TraceProcessEvent\"", "\"data\"",
                                        "\"String\""};
    json_error_t why;
    bool is_relevant = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        is_relevant = is_relevant || strstr(text, words[i]);
    if (!is_relevant)
        return LH_OK;
    json_t *line = lhi_json_load(text, strlen(text), JSON_DECODE_ANY, &why);
    if (!line) {
        lhi_defect_add(x->p->remarks, LHI_REMARK_UNREAD, 1,
                       "%s:%" PRIu64 ": %s", x->name, x->line, why.text);
        return LH_OK;
    }
    const json_t *range = json_object_get(line, "NvtxEvent");
    const json_t *cuda = json_object_get(line, "CudaEvent");
    const json_t *launch = json_object_get(line, "TraceProcessEvent");
    lh_status status = range    ? parse_range(x, range, err)
                       : cuda   ? parse_cuda(x, cuda, false, err)
                       : launch ? parse_cuda(x, launch, true, err)
                                : parse_strings(x, line, err);
    json_decref(line);
    return status;
}

/* Reads and parses all an export's lines. */
static lh_status read_lines(nsight_export *x, lhi_gzip_stream *zip,
                            lh_error *err)
{
    lhi_line_stream lines = {.zip = zip, .name = x->name};
    char *text = NULL;
    lh_status status;
    do {
        status = lhi_line_stream_next(&lines, &text, err);
        x->line = lines.line;
        if (status == LH_OK && text)
            status = parse_line(x, text, err);
    } while (status == LH_OK && text);
    lhi_line_stream_fini(&lines);
    if (status == LH_OK && zip->reason)
        lhi_defect_add(x->p->remarks, LHI_REMARK_CUT, 1, "%s: %s", x->name,
                       zip->reason);
    return status;
}

/* --- processes ------------------------------------------------------------ */

/* Compares NVTX ranges by process, then by start, longer ones first, for
 * lhi_sort(). */
static int compare_ranges(const void *a, const void *b)
{
    const nvtx_range *x = a, *y = b;
    uint32_t p = process_of(x->thread), q = process_of(y->thread);
    if (p != q)
        return p > q ? 1 : -1;
    if (x->start_ns != y->start_ns)
        return x->start_ns > y->start_ns ? 1 : -1;
    if (x->end_ns != y->end_ns)
        return x->end_ns < y->end_ns ? 1 : -1;
    return (x->order > y->order) - (x->order < y->order);
}

/* Compares GPU work (kernels, copies and launches) by process, then by start,
 * for lhi_sort(). */
static int compare_work(const void *a, const void *b)
{
    const cuda_work *x = a, *y = b;
    if (x->process != y->process)
        return x->process > y->process ? 1 : -1;
    if (x->kernel.start_ns != y->kernel.start_ns)
        return x->kernel.start_ns > y->kernel.start_ns ? 1 : -1;
    return (x->kernel.correlation > y->kernel.correlation) -
           (x->kernel.correlation < y->kernel.correlation);
}

/* Removes the sequence number, sizes and ids that PyTorch's emit_nvtx() appends
 * to an operator's name from `text`. Returns the autograd sequence number among
 * them, or -1. */
static int64_t cut_additions(char *text)
{
    static const char *const additions[] = {
        ", seq = ", ", sizes = ", ", op_id = "};
    const char *number = strstr(text, additions[0]);
    int64_t seq =
        number ? strtoll(number + strlen(additions[0]), NULL, 10) : -1;
    for (size_t i = 0; i < sizeof additions / sizeof *additions; i++) {
        char *at = strstr(text, additions[i]);
        if (at)
            *at = '\0';
    }
    return seq >= 0 ? seq : -1;
}

/* Checks whether an NVTX range is a PyTorch operator: by its name, or because
 * it has a sequence number (`number`, -1: none). */
static bool is_operator(const char *text, int64_t number)
{
    return number >= 0 || strncmp(text, "aten::", 6) == 0 ||
           strncmp(text, "autograd::", 10) == 0 ||
           strncmp(text, "c10d::", 6) == 0;
}

/* Adds an NVTX range (named time interval of a thread) to a process's events
 * `e` as a PyTorch operator or a library's range; also as a named range if the
 * name is a known one. */
static lh_status add_range(nsight_export *x, nvtx_range *r, lhi_file_events *e,
                           lh_error *err)
{
    if (!r->text)
        LHI_TRY(copy_text(get_string(x, r->id), &r->text, err));
    int64_t number = cut_additions(r->text);
    LHI_TRY(lhi_profiler_add_operator(
        e, r->text,
        (lhi_cpu_op){.start_ns = r->start_ns,
                     .end_ns = r->end_ns,
                     .first_number = number,
                     .is_range = !is_operator(r->text, number),
                     .thread = (int64_t)r->thread},
        err));
    return lhi_profiler_add_range(x->p, e, x->name, r->text, r->start_ns,
                                  r->end_ns, err);
}

/* Adds a GPU kernel, a copy or a launch to a process's events `e`. */
static lh_status add_work(const nsight_export *x, const cuda_work *w,
                          lhi_file_events *e, lh_error *err)
{
    lhi_kernel k = w->kernel;
    k.communicates = strncmp(get_string(x, w->name), "nccl", 4) == 0;
    LHI_TRY(lhi_profiler_grow_array((void **)&e->kernels, e->n_kernels,
                                    &e->kernels_room, sizeof *e->kernels, err));
    e->kernels[e->n_kernels++] = k;
    return LH_OK;
}

/* Sets the rank's name for process number `process`: the file's name and, with
 * `several` processes, the process number. */
static lh_status name_rank(const nsight_export *x, uint32_t process,
                           bool several, lhi_profiled_rank *r, lh_error *err)
{
    size_t room = strlen(x->name) + 16;
    char *name = malloc(room);
    if (!name)
        return lhi_fail_nomem(err);
    if (several)
        snprintf(name, room, "%s#%" PRIu32, x->name, process);
    else
        snprintf(name, room, "%s", x->name);
    lh_status status = lhi_profiled_rank_name(r, name, err);
    free(name);
    return status;
}

/* Adds one process's rank, with its ranges from index *range on and its GPU
 * work from index *work on; advances both indices to the next process. */
static lh_status add_process(nsight_export *x, size_t *range, size_t *work,
                             lh_error *err)
{
    lhi_file_events events = {0};
    lhi_profiled_rank r = {.rank = LH_NONE};
    uint32_t process = UINT32_MAX;
    lh_status status = LH_OK;
    bool several = *range > 0 || *work > 0;
    if (*range < x->n_ranges)
        process = process_of(x->ranges[*range].thread);
    if (*work < x->n_work && x->work[*work].process < process)
        process = x->work[*work].process;
    while (status == LH_OK && *range < x->n_ranges &&
           process_of(x->ranges[*range].thread) == process)
        status = add_range(x, &x->ranges[(*range)++], &events, err);
    while (status == LH_OK && *work < x->n_work &&
           x->work[*work].process == process)
        status = add_work(x, &x->work[(*work)++], &events, err);
    several = several || *range < x->n_ranges || *work < x->n_work;
    if (status == LH_OK)
        status = name_rank(x, process, several, &r, err);
    if (status == LH_OK)
        status = lhi_profiler_add_events(x->p, &r, &events, err);
    lhi_file_events_fini(&events);
    return status;
}

lh_status lhi_profiler_read_nsight(lhi_profiler *p, lhi_gzip_stream *zip,
                                   const char *name, lh_error *err)
{
    LHI_TRY(lhi_profiler_prepare_map(p, err));
    nsight_export x = {.p = p, .name = name};
    size_t range = 0, work = 0;
    lh_status status = read_lines(&x, zip, err);
    if (status == LH_OK && x.n_timed == 0)
        status = lhi_fail(
            err, LH_EINPUT,
            "%s: has no NVTX range or kernel with a time: record with nsys "
            "profile --trace cuda,nvtx, and export with --type jsonlines",
            name);
    lhi_sort(x.ranges, x.n_ranges, sizeof *x.ranges, compare_ranges);
    lhi_sort(x.work, x.n_work, sizeof *x.work, compare_work);
    while (status == LH_OK && (range < x.n_ranges || work < x.n_work))
        status = add_process(&x, &range, &work, err);
    export_fini(&x);
    return status;
}
