/* A module that calls commands of other modules, from the places from which modules can call:
 *
 *     CALL.NOW   flags command [argument …]   from a command; replies with the reply of the call
 *     CALL.TIMER flags command [argument …]   from a timer; the reply of the call is dropped
 *     CALL.LATER command [argument …]         as a call that may block, from Redis 7.2 on
 *     CALL.HEARD [key]                        from a key event: acquires the lock whenever this key expires;
 *                                             replies with the number of `TRYAGAIN` errors so far
 *
 * Loaded with an argument, it first adds ACL categories until the server has no room for more.
 *
 * It does not use the header of the module API: the server returns functions by their names. */
#include <stddef.h>
#include <string.h>

typedef struct Ctx Ctx;
typedef struct Text Text;
typedef struct Reply Reply;
typedef struct Blocked Blocked;
typedef int Command(Ctx *, Text **, int);

enum { OK = 0, ERR = 1, PROMISE = 12 };

/* The functions of the module API that are used here. The last four are NULL before Redis 7.2. */
#define API(X) \
    X(void *, Alloc, (size_t)) \
    X(void, Free, (void *)) \
    X(int, CreateCommand, (Ctx *, const char *, Command *, const char *, int, int, int)) \
    X(const char *, StringPtrLen, (const Text *, size_t *)) \
    X(void, RetainString, (Ctx *, Text *)) \
    X(void, FreeString, (Ctx *, Text *)) \
    X(Reply *, Call, (Ctx *, const char *, const char *, ...)) \
    X(int, CallReplyType, (Reply *)) \
    X(void, FreeCallReply, (Reply *)) \
    X(const char *, CallReplyStringPtr, (Reply *, size_t *)) \
    X(int, SubscribeToKeyspaceEvents, (Ctx *, int, int (*)(Ctx *, int, const char *, Text *))) \
    X(int, ReplyWithLongLong, (Ctx *, long long)) \
    X(int, ReplyWithCallReply, (Ctx *, Reply *)) \
    X(int, ReplyWithError, (Ctx *, const char *)) \
    X(int, ReplyWithSimpleString, (Ctx *, const char *)) \
    X(unsigned long long, CreateTimer, (Ctx *, long long, void (*)(Ctx *, void *), void *)) \
    X(Blocked *, BlockClient, (Ctx *, Command *, Command *, void (*)(Ctx *, void *), long long)) \
    X(int, UnblockClient, (Blocked *, void *)) \
    X(void, SetDisconnectCallback, (Blocked *, void (*)(Ctx *, Blocked *))) \
    X(Ctx *, GetThreadSafeContext, (Blocked *)) \
    X(void, FreeThreadSafeContext, (Ctx *)) \
    X(void, BlockClientSetPrivateData, (Blocked *, void *)) \
    X(void *, BlockClientGetPrivateData, (Blocked *)) \
    X(void, CallReplyPromiseSetUnblockHandler, (Reply *, void (*)(Ctx *, Reply *, void *), void *)) \
    X(int, CallReplyPromiseAbort, (Reply *, void **))

#define DECLARE(result, name, arguments) static result (*name) arguments;
API(DECLARE)

static const char *chars(const Text *text) {
    size_t length;
    return StringPtrLen(text, &length);
}

/* Calls the command words[1] with the words after it. words[0] are the flags of RedisModule_Call. */
static Reply *call(Ctx *ctx, Text **words, int count) {
    char format[32] = "";
    strncat(format, chars(words[0]), sizeof format - 2);
    strcat(format, "v");
    return Call(ctx, chars(words[1]), format, words + 2, (size_t)(count - 2));
}

static int now(Ctx *ctx, Text **argv, int argc) {
    Reply *reply = call(ctx, argv + 1, argc - 1);
    if (!reply) return ReplyWithError(ctx, "ERR the call was refused");
    ReplyWithCallReply(ctx, reply);
    FreeCallReply(reply);
    return OK;
}

typedef struct {
    int count;
    Text *words[];
} Kept;

static void fired(Ctx *ctx, void *data) {
    Kept *kept = data;
    Reply *reply = call(ctx, kept->words, kept->count);
    if (reply) FreeCallReply(reply);
    for (int i = 0; i < kept->count; i++) FreeString(NULL, kept->words[i]);
    Free(kept);
}

static int timer(Ctx *ctx, Text **argv, int argc) {
    Kept *kept = Alloc(sizeof *kept + sizeof(Text *) * (size_t)argc);
    kept->count = argc - 1;
    for (int i = 1; i < argc; i++) {
        RetainString(NULL, argv[i]);
        kept->words[i - 1] = argv[i];
    }
    CreateTimer(ctx, 0, fired, kept);
    return ReplyWithSimpleString(ctx, "OK");
}

static void fulfilled(Ctx *unused, Reply *reply, void *data) {
    (void)unused;
    Blocked *caller = data;
    Ctx *ctx = GetThreadSafeContext(caller);
    ReplyWithCallReply(ctx, reply);
    FreeThreadSafeContext(ctx);
    FreeCallReply(BlockClientGetPrivateData(caller));
    UnblockClient(caller, NULL);
}

static void gone(Ctx *unused, Blocked *caller) {
    (void)unused;
    void *data;
    Reply *promise = BlockClientGetPrivateData(caller);
    CallReplyPromiseAbort(promise, &data);
    FreeCallReply(promise);
    UnblockClient(caller, NULL);
}

static int later(Ctx *ctx, Text **argv, int argc) {
    if (!CallReplyPromiseAbort) return ReplyWithError(ctx, "ERR not on this server");
    Reply *reply = Call(ctx, chars(argv[1]), "KEv", argv + 2, (size_t)(argc - 2));
    if (!reply) return ReplyWithError(ctx, "ERR the call was refused");
    if (CallReplyType(reply) != PROMISE) {
        ReplyWithCallReply(ctx, reply);
        FreeCallReply(reply);
        return OK;
    }
    Blocked *caller = BlockClient(ctx, NULL, NULL, NULL, 0);
    SetDisconnectCallback(caller, gone);
    BlockClientSetPrivateData(caller, reply);
    CallReplyPromiseSetUnblockHandler(reply, fulfilled, caller);
    return OK;
}

static char heard_key[64];
static long long refused;

static int heard(Ctx *ctx, int type, const char *event, Text *key) {
    (void)type;
    if (strcmp(event, "expired") || strcmp(chars(key), heard_key)) return OK;
    Reply *reply = Call(ctx, "LOCK.ACQUIRE", "Escc", key, "listener", "1000");
    if (!reply) return OK;
    size_t length;
    const char *text = CallReplyStringPtr(reply, &length);
    refused += length > 8 && !memcmp(text, "TRYAGAIN", 8);
    FreeCallReply(reply);
    return OK;
}

static int hear(Ctx *ctx, Text **argv, int argc) {
    if (argc > 1) strncpy(heard_key, chars(argv[1]), sizeof heard_key - 1);
    return ReplyWithLongLong(ctx, refused);
}

static void fill_categories(Ctx *ctx, int (*add)(Ctx *, const char *)) {
    char name[] = "filler-aa";
    do {
        name[8] = name[8] == 'z' ? 'a' : name[8] + 1;
        name[7] += name[8] == 'a';
    } while (add(ctx, name) == OK);
}

int RedisModule_OnLoad(Ctx *ctx, Text **argv, int argc) {
    (void)argv;
    int (*add)(Ctx *, const char *);
    int (*api)(const char *, void *) = *(int (**)(const char *, void *))ctx;
    int (*attributes)(Ctx *, const char *, int, int);
    if (api("RedisModule_SetModuleAttribs", &attributes) != OK) return ERR;
    attributes(ctx, "caller", 1, 1);
#define LOOK_UP(result, name, arguments) api("RedisModule_" #name, &name);
    API(LOOK_UP)
    if (argc > 0 && api("RedisModule_AddACLCategory", &add) == OK) fill_categories(ctx, add);
    enum { EXPIRED = 1 << 8 };
    if (SubscribeToKeyspaceEvents(ctx, EXPIRED, heard) != OK) return ERR;
    if (CreateCommand(ctx, "call.heard", hear, "", 0, 0, 0) != OK) return ERR;
    if (CreateCommand(ctx, "call.now", now, "", 0, 0, 0) != OK) return ERR;
    if (CreateCommand(ctx, "call.timer", timer, "", 0, 0, 0) != OK) return ERR;
    return CreateCommand(ctx, "call.later", later, "", 0, 0, 0);
}
