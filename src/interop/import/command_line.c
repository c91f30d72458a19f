/* SPDX-License-Identifier: Apache-2.0 */
#include "interop/import/command_line.h"

#include <longhaul/experimental/job.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The splitter's state. */
typedef struct splitter {
    const char *at, *end, *file;
    uint32_t line, n;
    lhi_command_line_word *words;
    char *to; /* word under construction; large enough for all input */
} splitter;

lh_status lhi_command_line_check_expanded(const char *file,
                                          const lhi_command_line_word *word,
                                          lh_error *err)
{
    if (!word->expansion)
        return LH_OK;
    return lhi_fail(err, LH_EINPUT,
                    "%s:%u: '%.40s' needs shell expansion; give the expanded "
                    "value, or quote it as '...'",
                    file, word->line, word->expansion);
}

/* Checks whether a character separates words: a space, a tab or a line end. */
static bool is_space(char ch)
{
    return ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r';
}

/* Copies the character at the splitter's position to the current word and
 * advances; counts line ends. */
static void copy_character(splitter *c)
{
    c->line += *c->at == '\n';
    *c->to++ = *c->at++;
}

/* Copies an expansion such as "$NAME", "$(...)" or "`...`" unchanged to the
 * current word. Marks the word's first expansion. */
static void copy_expansion(splitter *c)
{
    lhi_command_line_word *word = &c->words[c->n];
    const bool command = *c->at == '`';
    uint32_t depth = 0;
    if (!word->expansion)
        word->expansion = c->to;
    copy_character(c);
    while (command && c->at < c->end && *c->at != '`')
        copy_character(c);
    if (command && c->at < c->end)
        copy_character(c);
    while (!command && c->at < c->end && (depth > 0 || *c->at == '(')) {
        depth += *c->at == '(';
        depth -= *c->at == ')';
        copy_character(c);
    }
}

/* Copies the character after a backslash, and drops an escaped line end. With
 * in_quotes (inside double quotes) keeps the backslash before characters that
 * need no escape there. */
static void copy_escaped(splitter *c, bool in_quotes)
{
    const char *next = c->at + 1;
    if (next < c->end && *next == '\r' && next + 1 < c->end && next[1] == '\n')
        next++; /* DOS line ends */
    if (next < c->end && *next == '\n') {
        c->at = next + 1;
        c->line++;
    } else if (next == c->end || (in_quotes && !strchr("\"\\$`", *next))) {
        copy_character(c);
    } else {
        c->at++;
        copy_character(c);
    }
}

/* Copies a quoted part of a word without its quotes, and with its expansions
 * unchanged.
 * LH_EINPUT: the closing quote is missing. */
static lh_status copy_quoted(splitter *c, lh_error *err)
{
    const char quote = *c->at++;
    const uint32_t line = c->line;
    while (c->at < c->end && *c->at != quote) {
        if (quote == '"' && (*c->at == '$' || *c->at == '`'))
            copy_expansion(c);
        else if (quote == '"' && *c->at == '\\')
            copy_escaped(c, true);
        else
            copy_character(c);
    }
    if (c->at == c->end)
        return lhi_fail(err, LH_EINPUT, "%s:%u: missing closing %c", c->file,
                        line, quote);
    c->at++;
    return LH_OK;
}

/* Reads the next word as a shell would, but copies expansions unchanged.
 * LH_EINPUT: a closing quote is missing. */
static lh_status add_word(splitter *c, lh_error *err)
{
    lhi_command_line_word *word = &c->words[c->n];
    char *first = c->to;
    *word = (lhi_command_line_word){.text = first, .line = c->line};
    while (c->at < c->end && !is_space(*c->at)) {
        if (*c->at == '$' || *c->at == '`')
            copy_expansion(c);
        else if (*c->at == '"' || *c->at == '\'')
            LHI_TRY(copy_quoted(c, err));
        else if (*c->at == '\\')
            copy_escaped(c, false);
        else
            copy_character(c);
    }
    *c->to++ = '\0';
    c->n++;
    return LH_OK;
}

/* Skips white space, comments and line continuations before the next word. */
static void skip_blanks(splitter *c)
{
    while (c->at < c->end) {
        size_t left = (size_t)(c->end - c->at);
        if (is_space(*c->at)) {
            c->line += *c->at++ == '\n';
        } else if (*c->at == '#') {
            const char *end = memchr(c->at, '\n', left);
            c->at = end ? end : c->end;
        } else if (left > 1 && *c->at == '\\' && c->at[1] == '\n') {
            c->at += 2;
            c->line++;
        } else if (left > 2 && memcmp(c->at, "\\\r\n", 3) == 0) {
            c->at += 3;
            c->line++;
        } else {
            return;
        }
    }
}

lh_status lhi_command_line_parse(const char *text, size_t len, const char *name,
                                 lhi_arena *mem, lhi_command_line *out,
                                 lh_error *err)
{
    splitter c = {.at = text, .end = text + len, .file = name, .line = 1};
    if (memchr(text, '\0', len))
        return lhi_fail(err, LH_EINPUT,
                        "%s: is not text: it contains a NUL "
                        "character",
                        name);
    uint32_t most = 0;
    for (size_t i = 0; i < len; i++)
        most += !is_space(text[i]) && (i == 0 || is_space(text[i - 1]));
    c.words = LHI_NEW(mem, lhi_command_line_word, most);
    c.to = LHI_NEW(mem, char, len + most + 1);
    if (!c.words || !c.to)
        return lhi_fail_nomem(err);
    for (skip_blanks(&c); c.at < c.end; skip_blanks(&c))
        LHI_TRY(add_word(&c, err));
    *out = (lhi_command_line){name, c.n, c.words};
    return LH_OK;
}

/* Checks whether the text `text` ends with the text `end`. */
static bool ends_in(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Reads a launcher's integer option called `name`, such as "--nnodes", spelled
 * with '-' or '_', from the first `n` words. Returns `usual` if it is not
 * given; 0 if its value is not a positive integer. */
static uint32_t read_launcher_count(const lhi_command_line *words, uint32_t n,
                                    const char *name, uint32_t usual)
{
    uint32_t found = usual;
    for (uint32_t i = 0; i < n; i++) {
        const char *at = words->all[i].text, *with = name;
        while (*with && (*at == '_' ? '-' : *at) == *with) {
            with++;
            at++;
        }
        if (*with || (*at && *at != '='))
            continue;
        const char *value = *at         ? at + 1
                            : i + 1 < n ? words->all[i + 1].text
                                        : "";
        char *end;
        long number = strtol(value, &end, 10);
        found = *value && !*end && number > 0 && number <= (1 << 20)
                    ? (uint32_t)number
                    : 0;
    }
    return found;
}

uint32_t lhi_command_line_count_gpus(const lhi_command_line *words, uint32_t n)
{
    const uint64_t gpus =
        (uint64_t)read_launcher_count(words, n, "--nnodes", 1) *
        read_launcher_count(words, n, "--nproc-per-node", 0);
    return gpus <= LH_MAX_GPUS ? (uint32_t)gpus : 0;
}

uint32_t lhi_command_line_find_arguments(const lhi_command_line *words)
{
    if (words->n == 0 || strncmp(words->all[0].text, "--", 2) == 0)
        return 0;
    for (uint32_t i = 0; i < words->n; i++) {
        if (ends_in(words->all[i].text, ".py") ||
            ends_in(words->all[i].text, ".sh"))
            return i + 1;
        if (strcmp(words->all[i].text, "-m") == 0 && i + 1 < words->n &&
            strncmp(words->all[i + 1].text, "torch.distributed.", 18) != 0)
            return i + 2;
    }
    return 0;
}
