/* SPDX-License-Identifier: Apache-2.0 */
/* Parses arguments by the tables. */
#include "cli.h"
#include "values.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Checks whether the option is one of those that every command has. */
static bool is_common(const cli_option *option)
{
    return option >= cli_common_options &&
           option < cli_common_options + cli_n_common_options;
}

/* Fails due to an unknown long option; the message has a similar name if there
 * is one. */
static lh_status fail_unknown_long(cli *c, const char *name, size_t len)
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
    const char *near = cli_find_similar_word(typed, words);
    if (near)
        return cli_usage(c, "unknown option '--%s'; did you mean '--%s'?",
                         typed, near);
    return cli_usage(c, "unknown option '--%s'", typed);
}

/* Parses a word that the option accepts; *out is its index. */
static lh_status parse_choice(cli *c, const cli_option *o, const char *text,
                              uint32_t *out)
{
    char all[256] = "";
    for (uint32_t i = 0; cli_choice_word(o, i); i++) {
        if (strcmp(cli_choice_word(o, i), text) == 0) {
            *out = i;
            return LH_OK;
        }
        size_t len = strlen(all);
        snprintf(all + len, sizeof all - len, "%s%s", i ? ", " : "",
                 cli_choice_word(o, i));
    }
    return cli_usage(c, "--%s: '%.60s' is not one of: %s", o->name, text, all);
}

/* Parses a whole number from the option's least to `most`. */
static lh_status parse_integer(cli *c, const cli_option *o, const char *text,
                               uint64_t most, uint64_t *out)
{
    if (cli_parse_count(text, o->least, most, out))
        return LH_OK;
    return cli_usage(
        c, "--%s: '%.60s' is not a whole number from %" PRIu32 " to %" PRIu64,
        o->name, text, o->least, most);
}

/* Parses a real number within the option's range. */
static lh_status read_real(cli *c, const cli_option *o, const char *text,
                           double *out)
{
    const char *rest = "";
    bool above = o->type == CLI_REAL_ABOVE;
    char most[40] = "";
    if (cli_parse_real(text, out, &rest) && !*rest &&
        (above ? *out > o->low : *out >= o->low) &&
        (!(o->high > 0) || *out <= o->high))
        return LH_OK;
    if (o->high > 0)
        snprintf(most, sizeof most, ", at most %.12g", o->high);
    return cli_usage(c, "--%s: '%.60s' is not a number%s %g%s%s", o->name, text,
                     above ? " above" : ",", o->low, above ? "" : " or more",
                     most);
}

/* Parses a time with its unit, above 0 or from 0 on; *out_ns in ns. */
static lh_status read_time(cli *c, const cli_option *o, const char *text,
                           int64_t *out_ns)
{
    const char *rest, *unit = o->example_argument ? o->example_argument : "1s";
    double number;
    const bool zero = o->type == CLI_TIME_OR_0;
    if (cli_parse_time(text, out_ns) && (*out_ns > 0 || zero))
        return LH_OK;
    if (cli_parse_real(text, &number, &rest) && !*rest && number > 0)
        return cli_usage(c, "--%s: '%.60s' has no unit; did you mean %.60s%s?",
                         o->name, text, text,
                         unit + strspn(unit, "0123456789."));
    return cli_usage(c, "--%s: '%.60s' is not a time%s such as %.60s", o->name,
                     text, zero ? "" : " above 0",
                     o->example_argument ? o->example_argument : "3.98s");
}

/* Parses `text` by the option's type and stores the value in the command's
 * settings, at the option's offset. */
static lh_status store(cli *c, const cli_option *o, const char *text)
{
    char *at =
        (is_common(o) ? (char *)&c->common : (char *)c->settings) + o->at;
    uint64_t whole = 0;
    uint32_t count;
    double real;
    int64_t ns;
    switch (o->type) {
    case CLI_FLAG:
        memcpy(at, &(bool){true}, sizeof(bool));
        return LH_OK;
    case CLI_TEXT:
    case CLI_OUTPUT:
    case CLI_APPENDED:
        if (!*text)
            return cli_usage(c, "--%s: the argument is empty", o->name);
        if (o->list_separator) {
            const char *before;
            memcpy(&before, at, sizeof before);
            if (before &&
                !(text = cli_join(c, before, o->list_separator, text)))
                return cli_no_memory(c);
        }
        memcpy(at, &text, sizeof text);
        return LH_OK;
    case CLI_COUNT:
        CLI_TRY(parse_integer(c, o, text, o->most, &whole));
        count = (uint32_t)whole;
        memcpy(at, &count, sizeof count);
        return LH_OK;
    case CLI_COUNT64:
    case CLI_SEED:
        CLI_TRY(parse_integer(c, o, text,
                              o->type == CLI_SEED ? UINT64_MAX
                              : o->most           ? o->most
                                                  : UINT64_C(1) << 62,
                              &whole));
        memcpy(at, &whole, sizeof whole);
        return LH_OK;
    case CLI_REAL:
    case CLI_REAL_ABOVE:
        CLI_TRY(read_real(c, o, text, &real));
        memcpy(at, &real, sizeof real);
        return LH_OK;
    case CLI_TIME:
    case CLI_TIME_OR_0:
        CLI_TRY(read_time(c, o, text, &ns));
        memcpy(at, &ns, sizeof ns);
        return LH_OK;
    case CLI_CHOICE:
        CLI_TRY(parse_choice(c, o, text, &count));
        memcpy(at, &count, sizeof count);
        return LH_OK;
    }
    return LH_OK;
}

/* Stores in the command's settings the default value of each of the `count`
 * options that has one. */
static lh_status store_presets(cli *c, const cli_option *options,
                               uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (options[i].preset)
            CLI_TRY(store(c, &options[i], options[i].preset));
    return LH_OK;
}

/* Stores a value that the command line gives, and records that the option was
 * given. */
static lh_status store_typed(cli *c, const cli_option *o, const char *text)
{
    assert(c->command->n_options <= CLI_MOST_OPTIONS);
    if (!is_common(o))
        c->given[o - c->command->options] = true;
    return store(c, o, text);
}

bool cli_is_given(const cli *c, const char *name)
{
    const cli_option *o = cli_find_option(c->command, name);
    return o && !is_common(o) && c->given[o - c->command->options];
}

/* Parses a long option, `--name`, `--name=value` or `--name value`, at
 * argv[*i]. */
static lh_status parse_long(cli *c, int argc, char **argv, int *i)
{
    const char *name = argv[*i] + 2;
    size_t len = strcspn(name, "=");
    const char *value = name[len] ? name + len + 1 : NULL;
    const cli_option *o = cli_find_long(c->command, name, len);
    if (!o)
        return fail_unknown_long(c, name, len);
    if (o->type == CLI_FLAG) {
        if (value)
            return cli_usage(c, "--%s takes no argument", o->name);
        return store_typed(c, o, "");
    }
    if (!value) {
        if (*i + 1 >= argc)
            return cli_usage(c, "--%s requires an argument: %s", o->name,
                             o->arg);
        value = argv[++*i];
    }
    return store_typed(c, o, value);
}

/* Parses short options, `-q`, `-o value`, `-ovalue`, `-qo value`, at
 * argv[*i]. */
static lh_status parse_short(cli *c, int argc, char **argv, int *i)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        const cli_option *o = cli_find_letter(c->command, *p);
        if (!o)
            return cli_usage(c, "unknown option '-%c'", *p);
        if (o->type == CLI_FLAG) {
            CLI_TRY(store_typed(c, o, ""));
            continue;
        }
        if (p[1])
            return store_typed(c, o, p + 1);
        if (*i + 1 >= argc)
            return cli_usage(c, "-%c requires an argument: %s", *p, o->arg);
        return store_typed(c, o, argv[++*i]);
    }
    return LH_OK;
}

/* Fails with a usage error unless the operand count is one that the command
 * accepts; any count is allowed with --help or --version. */
static lh_status count_operands(cli *c)
{
    const cli_command *k = c->command;
    if (c->common.help || c->common.help_all || c->common.version)
        return LH_OK;
    if (c->n_operands > k->most_operands)
        return cli_usage(c, "unexpected argument '%.100s'; %s%s",
                         c->operands[k->most_operands],
                         k->operands ? "it takes " : "it takes none",
                         k->operands ? k->operands : "");
    if (c->n_operands < k->least_operands)
        return cli_usage(c, "a required argument is missing; it takes %s",
                         k->operands);
    return LH_OK;
}

/* Checks whether an argument is a list of another program's arguments, which
 * has several words: long option names contain no space. Values after a letter
 * may, e.g. "-omy plan". */
static bool is_list(const char *arg)
{
    return arg[1] == '-' && strcspn(arg, " \t\n") < strcspn(arg, "=");
}

lh_status cli_parse(cli *c, int argc, char **argv, int first)
{
    const cli_command *k = c->command;
    CLI_TRY(store_presets(c, cli_common_options, cli_n_common_options));
    CLI_TRY(store_presets(c, k->options, k->n_options));
    bool only_operands = false;
    /* Options after an error are read, too: those of --hosts are needed to
     * report it to other hosts. The first error counts. */
    lh_status status = LH_OK;
    lh_error why = {0};
    for (int i = first; i < argc; i++) {
        const char *arg = argv[i];
        lh_status one = LH_OK;
        if (only_operands || arg[0] != '-' || !arg[1] || is_list(arg))
            c->operands[c->n_operands++] = argv[i];
        else if (strcmp(arg, "--") == 0)
            only_operands = true;
        else if (arg[1] == '-')
            one = parse_long(c, argc, argv, &i);
        else
            one = parse_short(c, argc, argv, &i);
        if (one == LH_ENOMEM)
            return one;
        if (one != LH_OK && status == LH_OK) {
            status = one;
            why = c->err;
        }
    }
    if (status == LH_OK)
        return count_operands(c);
    c->err = why;
    return status;
}
