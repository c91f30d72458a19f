/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "inputs.h"

#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/simulate.h>

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* --- files -------------------------------------------------------------- */

/* Checks for consecutive NUL bytes, which no text contains: the source may be
 * endless. */
static bool has_nuls(const char *bytes, size_t n)
{
    static const char nuls[4];
    const char *at = bytes, *end = bytes + n;
    while ((at = memchr(at, '\0', (size_t)(end - at))) != NULL)
        if ((size_t)(end - at) >= sizeof nuls &&
            memcmp(at, nuls, sizeof nuls) == 0)
            return true;
        else
            at++;
    return false;
}

/* Reads standard input whole into the input's buffer; error: too large, or a
 * NUL byte. */
static lh_status read_standard_input(cli *c, cli_input *input)
{
    enum { MOST = 512 << 20 }; /* twice the largest kind: capacity doubles */
    size_t room = 0;
    for (;;) {
        if (input->len + 1 >= room) {
            room = room ? room * 2 : 1 << 16;
            char *more = room <= MOST ? realloc(input->text, room) : NULL;
            if (!more)
                return room <= MOST
                           ? cli_no_memory(c)
                           : cli_error(c, LH_EINPUT,
                                       "standard input: larger than %d MiB, "
                                       "the maximum",
                                       MOST / 2 >> 20);
            input->text = more;
        }
        size_t got =
            fread(input->text + input->len, 1, room - input->len - 1, stdin);
        if (got == 0)
            break;
        if (has_nuls(input->text + input->len, got))
            return cli_error(c, LH_EINPUT,
                             "standard input: not a text: NUL bytes after byte "
                             "%zu",
                             input->len);
        input->len += got;
    }
    if (ferror(stdin))
        return cli_error(c, LH_EIO, "standard input: %s", strerror(errno));
    input->text[input->len] = '\0';
    return LH_OK;
}

/* Maximum size of an input from a pipe, in bytes. */
enum { MOST_PIPED = 256 << 20 };

/* Reads a file's beginning into head[], as a string, to detect its format. */
static lh_status read_head(cli *c, const char *path, char *head, size_t room)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return cli_error(c, LH_EIO, "%s: %s", path, strerror(errno));
    errno = 0;
    size_t len = fread(head, 1, room - 1, file);
    int cause = ferror(file) ? errno : 0;
    fclose(file);
    if (cause)
        return cli_error(c, LH_EIO, "%s: %s", path, strerror(cause));
    for (size_t i = 0; i < len; i++)
        if (!head[i])
            head[i] = ' '; /* the actual parser rejects it */
    head[len] = '\0';
    return LH_OK;
}

lh_status cli_input_open(cli *c, const char *path, cli_input *out)
{
    *out = (cli_input){.path = path};
    if (strcmp(path, "-") == 0) {
        CLI_TRY(read_standard_input(c, out));
        out->path = "standard input";
        lh_text_detect_kind(out->text, out->kind);
        return LH_OK;
    }
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        /* A pipe can be read only once: pass the text on to the parser. */
        CLI_TRY(lh_file_read(path, MOST_PIPED, &out->text, &out->len, &c->err));
        lh_text_detect_kind(out->text, out->kind);
        return LH_OK;
    }
    enum { HEAD = 1 << 16 };
    char *head = malloc(HEAD);
    if (!head)
        return cli_no_memory(c);
    lh_status status = read_head(c, path, head, HEAD);
    if (status == LH_OK)
        lh_text_detect_kind(head, out->kind);
    free(head);
    return status;
}

void cli_input_close(cli_input *input)
{
    free(input->text);
    *input = (cli_input){0};
}

lh_status cli_input_pipeline(cli *c, const cli_input *input, lh_pipeline **out)
{
    if (input->text)
        return lh_pipeline_parse(input->text, input->len, input->path, out,
                                 &c->err);
    return lh_pipeline_read(input->path, out, &c->err);
}

lh_status cli_reject_input(cli *c, const cli_input *input, const char *wants)
{
    const char *article = input->kind[0] == 'o' ? "an" : "a"; /* optical */
    return cli_error(c, LH_EINPUT, "%s: is %s %s; '%s' takes %s", input->path,
                     article, input->kind, c->command->name, wants);
}

bool cli_input_is_other(const cli_input *input, const char *kind)
{
    static const char *const kinds[] = {
        "pipeline", "job", "plan", "profile", "trace", "optical", NULL};
    for (uint32_t i = 0; kinds[i]; i++)
        if (strcmp(input->kind, kinds[i]) == 0)
            return strcmp(kind, kinds[i]) != 0;
    return false;
}

bool cli_is_method(const char *name)
{
    return lh_scheduler_check_name(name, NULL) == LH_OK;
}

lh_status cli_check_method(cli *c, const char *option, const char *name)
{
    lh_error why;
    if (lh_scheduler_check_name(name, &why) == LH_OK)
        return LH_OK;
    enum { MOST = 64 };
    const char *names[MOST + 1];
    uint32_t count = lh_n_schedulers();
    for (uint32_t i = 0; i < count && i < MOST; i++) {
        names[i] = lh_scheduler_name(i);
        names[i + 1] = NULL;
    }
    const char *near = cli_find_similar_word(name, names);
    if (near)
        return cli_usage(c, "%s: unknown method '%.60s'; did you mean %s?",
                         option, name, near);
    return cli_usage(c, "%s: %s", option, why.text);
}

bool cli_has_word(const char *words, const char *word)
{
    const size_t len = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += len)
        if ((at == words || at[-1] == ' ') && (!at[len] || at[len] == ' '))
            return true;
    return false;
}

lh_status cli_check_sub_blocks(cli *c, const char *method, uint32_t sub_blocks)
{
    if (sub_blocks <= 1 ||
        (method && cli_has_word(CLI_SPLITTING_METHODS, method)))
        return LH_OK;
    if (!method || !cli_is_method(method))
        return cli_usage(c,
                         "--sub-blocks has no effect on an existing schedule; "
                         "it applies to methods that split passes: %s",
                         CLI_SPLITTING_METHODS);
    return cli_usage(
        c,
        "--sub-blocks has no effect with %s; it applies to methods that split "
        "passes: %s",
        method, CLI_SPLITTING_METHODS);
}

/* --- performance model -------------------------------------------------- */

/* The first entry keeps the pipeline's mode; the others are in lh_receives
 * order. */
const char *const cli_receives[] = {"pipeline", "early", "late", "late-fd",
                                    NULL};
const char *const cli_objectives[] = {"makespan", "first-device", NULL};

void cli_set_receives(const cli_model *model, lh_receives *receives, bool *own)
{
    *own = model->receives > 0;
    *receives = *own ? (lh_receives)(model->receives - 1) : LH_RECEIVES_EARLY;
}

const char *cli_receives_of(const cli_model *model, const lh_pipeline *pipeline)
{
    return model->receives > 0
               ? cli_receives[model->receives]
               : lh_receives_name(lh_pipeline_receives(pipeline));
}

lh_sim_options cli_sim_options(const cli_model *model)
{
    lh_sim_options sim = {
        .size = sizeof sim,
        .coupled_queue = model->coupled,
        .fifo = model->fifo,
        .delegated = model->delegated,
        .host_copy_ns = model->host_copy_ns,
    };
    cli_set_receives(model, &sim.receives, &sim.override_receives);
    return sim;
}

int64_t cli_objective_ns(const cli_model *model, const lh_timeline *timeline)
{
    return model->objective == CLI_FIRST_DEVICE
               ? lh_timeline_first_device_end(timeline)
               : lh_timeline_makespan(timeline);
}

/* --- numbers ------------------------------------------------------------ */

json_t *cli_seconds(int64_t ns)
{
    return json_real((double)ns / 1e9);
}

char *cli_time_text(int64_t ns, char *buffer)
{
    static const struct {
        double ns;
        const char *name;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
    uint32_t i = 0;
    /* Use seconds from 10 s on: 312 ms and 2158 ms are easier to compare than
     * 2.158 s. */
    double at_least[] = {1e10, 1e6, 1e3, 0};
    while (i < 3 && fabs((double)ns) < at_least[i])
        i++;
    if (ns == 0)
        i = 1;
    double value = (double)ns / units[i].ns;
    int digits = ns % (int64_t)units[i].ns == 0 ? 0 : 3;
    snprintf(buffer, CLI_TIME_TEXT, "%.*f %s", digits, value, units[i].name);
    return buffer;
}

char *cli_memory_text(int64_t amount, const char *unit, char *buffer)
{
    const double mib = (double)amount / (double)(INT64_C(1) << 20);
    if (strcmp(unit, "bytes") == 0 && mib >= 1) {
        const bool small = mib < 102.4;
        const double value = small ? mib : mib / 1024;
        snprintf(buffer, CLI_MEMORY_TEXT, "%.*f %s", value < 10 ? 2 : 1, value,
                 small ? "MiB" : "GiB");
    } else {
        snprintf(buffer, CLI_MEMORY_TEXT, "%" PRId64 "%s%.40s", amount,
                 *unit ? " " : "", unit);
    }
    return buffer;
}

char *cli_grouped_text(double number, char *buffer)
{
    char digits[CLI_GROUPED_TEXT / 2];
    const int n = snprintf(digits, sizeof digits, "%.0f", number);
    char *to = buffer;
    for (int i = 0; i < n && i < (int)sizeof digits - 1; i++) {
        if (i && (n - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return buffer;
}

int64_t cli_highest_peak(const lh_timeline *timeline, uint32_t *device)
{
    int64_t most = INT64_MIN;
    for (uint32_t d = 0; d < lh_timeline_n_devices(timeline); d++) {
        int64_t peak = lh_timeline_peak_memory(timeline, d);
        if (peak <= most)
            continue;
        most = peak;
        if (device)
            *device = d;
    }
    return most;
}

double cli_monotonic_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
