/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments by the tables. */
#include "cli.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const cli_option cli_common_options[] = {
    {.name = "json",
     .type = CLI_FLAG,
     .at = offsetof(cli_common, json),
     .help = "Print one JSON object and nothing else."},
    {.name = "output",
     .letter = 'o',
     .type = CLI_OUTPUT,
     .at = offsetof(cli_common, output),
     .arg = "FILE",
     .help = "Write there what would be printed.",
     .words = CLI_WORDS_FILES},
    {.name = "quiet",
     .letter = 'q',
     .type = CLI_FLAG,
     .at = offsetof(cli_common, quiet),
     .help = "No progress and no remarks; errors only."},
    {.name = "seed",
     .type = CLI_SEED,
     .at = offsetof(cli_common, seed),
     .arg = "N",
     .preset = "0",
     .help = "Seed of searches that draw random numbers: the same seed gives "
             "the same result."},
    {.name = "help",
     .letter = 'h',
     .type = CLI_FLAG,
     .at = offsetof(cli_common, help),
     .help = "Print this help."},
    {.name = "version",
     .type = CLI_FLAG,
     .at = offsetof(cli_common, version),
     .help = "Print the version."},
};
const uint32_t cli_n_common_options =
    sizeof cli_common_options / sizeof *cli_common_options;

/* Edit distance where swapping neighbours counts as one. */
static size_t distance(const char *a, const char *b)
{
    enum { MAX = 40 };
    size_t n = strlen(a), m = strlen(b);
    if (n >= MAX || m >= MAX)
        return MAX;
    size_t d[MAX + 1][MAX + 1];
    for (size_t i = 0; i <= n; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
                a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[n][m];
}

const char *cli_nearest(const char *typed, const char *const *words)
{
    const char *nearest = NULL;
    size_t least = strlen(typed) / 3 + 1;
    for (; *words; words++) {
        size_t far = distance(typed, *words);
        /* What was begun but not ended is near, too. */
        if (strlen(typed) >= 3 && strncmp(typed, *words, strlen(typed)) == 0)
            far = 1;
        if (far <= least && (!nearest || far < least)) {
            nearest = *words;
            least = far;
        }
    }
    return nearest;
}

bool cli_parse_count(const char *text, uint64_t least, uint64_t most,
                     uint64_t *out)
{
    if (*text < '0' || *text > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end || errno || value < least || value > most)
        return false;
    *out = value;
    return true;
}

bool cli_parse_real(const char *text, double *out, const char **rest)
{
    if ((*text < '0' || *text > '9') && *text != '.')
        return false;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
        return false;
    char *end;
    double value = strtod(text, &end);
    if (end == text || !isfinite(value) || value < 0)
        return false;
    *out = value;
    *rest = end;
    return true;
}

static const cli_option *find_in(const cli_option *options, uint32_t count,
                                 const char *name, size_t len)
{
    for (uint32_t i = 0; i < count; i++)
        if (strlen(options[i].name) == len &&
            strncmp(options[i].name, name, len) == 0)
            return &options[i];
    return NULL;
}

static const cli_option *find_long(const cli_command *command, const char *name,
                                   size_t len)
{
    const cli_option *o =
        find_in(command->options, command->n_options, name, len);
    return o ? o : find_in(cli_common_options, cli_n_common_options, name, len);
}

const cli_option *cli_find_option(const cli_command *command, const char *name)
{
    return find_long(command, name, strlen(name));
}

static const cli_option *find_letter(const cli_command *command, char letter)
{
    for (uint32_t i = 0; i < command->n_options; i++)
        if (command->options[i].letter == letter)
            return &command->options[i];
    for (uint32_t i = 0; i < cli_n_common_options; i++)
        if (cli_common_options[i].letter == letter)
            return &cli_common_options[i];
    return NULL;
}

static bool is_common(const cli_option *option)
{
    return option >= cli_common_options &&
           option < cli_common_options + cli_n_common_options;
}

static lh_status unknown_long(cli *c, const char *name, size_t len)
{
    const char *words[64];
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->command->n_options && count < 50; i++)
        words[count++] = c->command->options[i].name;
    for (uint32_t i = 0; i < cli_n_common_options; i++)
        words[count++] = cli_common_options[i].name;
    words[count] = NULL;
    char typed[48];
    snprintf(typed, sizeof typed, "%.*s", (int)(len < 47 ? len : 47), name);
    const char *near = cli_nearest(typed, words);
    if (near)
        return cli_usage(c, "there is no option '--%s'; did you mean '--%s'?",
                         typed, near);
    return cli_usage(c, "there is no option '--%s'", typed);
}

const char *cli_choice(const cli_option *option, uint32_t i)
{
    return option->choices ? option->choices[i] : option->choice_name(i);
}

static lh_status choose(cli *c, const cli_option *o, const char *text,
                        uint32_t *out)
{
    char all[256] = "";
    for (uint32_t i = 0; cli_choice(o, i); i++) {
        if (strcmp(cli_choice(o, i), text) == 0) {
            *out = i;
            return LH_OK;
        }
        size_t len = strlen(all);
        snprintf(all + len, sizeof all - len, "%s%s", i ? ", " : "",
                 cli_choice(o, i));
    }
    return cli_usage(c, "--%s: '%.60s' is not one of: %s", o->name, text, all);
}

static lh_status store(cli *c, const cli_option *o, const char *text)
{
    char *at =
        (is_common(o) ? (char *)&c->common : (char *)c->settings) + o->at;
    uint64_t number;
    uint32_t index;
    switch (o->type) {
    case CLI_FLAG:
        memcpy(at, &(bool){true}, sizeof(bool));
        return LH_OK;
    case CLI_TEXT:
    case CLI_OUTPUT:
        if (!*text)
            return cli_usage(c, "--%s: the argument is empty", o->name);
        memcpy(at, &text, sizeof text);
        return LH_OK;
    case CLI_COUNT:
        if (!cli_parse_count(text, o->least, o->most, &number))
            return cli_usage(c,
                             "--%s: '%.60s' is not a whole number from %" PRIu32
                             " to %" PRIu32,
                             o->name, text, o->least, o->most);
        index = (uint32_t)number;
        memcpy(at, &index, sizeof index);
        return LH_OK;
    case CLI_SEED:
        if (!cli_parse_count(text, 0, UINT64_MAX, &number))
            return cli_usage(c,
                             "--%s: '%.60s' is not a whole number from 0 to "
                             "%" PRIu64,
                             o->name, text, UINT64_MAX);
        memcpy(at, &number, sizeof number);
        return LH_OK;
    case CLI_CHOICE:
        CLI_TRY(choose(c, o, text, &index));
        memcpy(at, &index, sizeof index);
        return LH_OK;
    }
    return LH_OK;
}

static lh_status store_presets(cli *c, const cli_option *options,
                               uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (options[i].preset)
            CLI_TRY(store(c, &options[i], options[i].preset));
    return LH_OK;
}

/* What was typed, unlike a preset. */
static lh_status take(cli *c, const cli_option *o, const char *text)
{
    assert(c->command->n_options <= 64); /* bits of c->given */
    if (!is_common(o))
        c->given |= UINT64_C(1) << (o - c->command->options);
    return store(c, o, text);
}

bool cli_given(const cli *c, const char *name)
{
    const cli_option *o =
        find_in(c->command->options, c->command->n_options, name, strlen(name));
    return o && (c->given >> (o - c->command->options) & 1);
}

/* `--name`, `--name=value` or `--name value`. */
static lh_status parse_long(cli *c, int argc, char **argv, int *i)
{
    const char *name = argv[*i] + 2;
    size_t len = strcspn(name, "=");
    const char *value = name[len] ? name + len + 1 : NULL;
    const cli_option *o = find_long(c->command, name, len);
    if (!o)
        return unknown_long(c, name, len);
    if (o->type == CLI_FLAG) {
        if (value)
            return cli_usage(c, "--%s takes no argument", o->name);
        return take(c, o, "");
    }
    if (!value) {
        if (*i + 1 >= argc)
            return cli_usage(c, "--%s needs an argument: %s", o->name, o->arg);
        value = argv[++*i];
    }
    return take(c, o, value);
}

/* `-q`, `-o value`, `-ovalue`, `-qo value`. */
static lh_status parse_short(cli *c, int argc, char **argv, int *i)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        const cli_option *o = find_letter(c->command, *p);
        if (!o)
            return cli_usage(c, "there is no option '-%c'", *p);
        if (o->type == CLI_FLAG) {
            CLI_TRY(take(c, o, ""));
            continue;
        }
        if (p[1])
            return take(c, o, p + 1);
        if (*i + 1 >= argc)
            return cli_usage(c, "-%c needs an argument: %s", *p, o->arg);
        return take(c, o, argv[++*i]);
    }
    return LH_OK;
}

static lh_status count_operands(cli *c)
{
    const cli_command *k = c->command;
    if (c->common.help || c->common.version)
        return LH_OK;
    if (c->n_operands > k->most_operands)
        return cli_usage(c, "'%.100s' is one argument too many; %s%s",
                         c->operands[k->most_operands],
                         k->operands ? "it takes " : "it takes none",
                         k->operands ? k->operands : "");
    if (c->n_operands < k->least_operands)
        return cli_usage(c, "an argument is missing; it takes %s", k->operands);
    return LH_OK;
}

static lh_status check_outputs(cli *c, const cli_option *options,
                               uint32_t count, const void *settings)
{
    for (uint32_t i = 0; i < count; i++) {
        const char *path;
        if (options[i].type != CLI_OUTPUT)
            continue;
        memcpy(&path, (const char *)settings + options[i].at, sizeof path);
        if (path)
            CLI_TRY(lh_file_writable(path, &c->err));
    }
    return LH_OK;
}

lh_status cli_check_outputs(cli *c)
{
    CLI_TRY(
        check_outputs(c, cli_common_options, cli_n_common_options, &c->common));
    return check_outputs(c, c->command->options, c->command->n_options,
                         c->settings);
}

lh_status cli_parse(cli *c, int argc, char **argv, int first)
{
    const cli_command *k = c->command;
    CLI_TRY(store_presets(c, cli_common_options, cli_n_common_options));
    CLI_TRY(store_presets(c, k->options, k->n_options));
    bool only_operands = false;
    for (int i = first; i < argc; i++) {
        const char *arg = argv[i];
        if (only_operands || arg[0] != '-' || !arg[1])
            c->operands[c->n_operands++] = argv[i];
        else if (strcmp(arg, "--") == 0)
            only_operands = true;
        else if (arg[1] == '-')
            CLI_TRY(parse_long(c, argc, argv, &i));
        else
            CLI_TRY(parse_short(c, argc, argv, &i));
    }
    return count_operands(c);
}
