import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;

/** What was checked, and what came out. */
final class Table {
    private static final List<String> FAILED = new ArrayList<>();
    private static String only = "";
    private static int passed;

    interface Body {
        Seen run() throws Exception;
    }

    /** What was seen; `null` if it is only reported. */
    record Seen(Boolean good, String text) {}

    private Table() {}

    static Seen seen(boolean good, Object text) {
        return new Seen(good, String.valueOf(text));
    }

    static Seen reported(Object text) {
        return new Seen(null, String.valueOf(text));
    }

    /** Only checks whose name contains this. */
    static void only(String part) {
        only = part;
    }

    static void chapter(String name) {
        System.out.printf("%n### %s%n%n| check | expected | seen | verdict |%n|---|---|---|---|%n", name);
    }

    static void check(String what, String expected, Body body) {
        if (!what.contains(only)) {
            return;
        }
        Seen seen;
        try {
            seen = body.run();
        } catch (ExecutionException e) {
            seen = seen(false, e.getCause());
        } catch (Exception e) {
            seen = seen(false, e);
        }
        String verdict = seen.good() == null ? "note" : seen.good() ? "pass" : "FAIL";
        if ("FAIL".equals(verdict)) {
            FAILED.add(what);
        }
        passed += "pass".equals(verdict) ? 1 : 0;
        System.out.printf("| %s | %s | %s | %s |%n", cell(what), cell(expected), cell(seen.text()), verdict);
    }

    private static String cell(String text) {
        return text.replace("|", "\\|").replaceAll("\\s+", " ");
    }

    /** How many failed. */
    static int end() {
        System.out.printf("%n%d passed, %d failed%n", passed, FAILED.size());
        FAILED.forEach(what -> System.out.println("FAIL: " + what));
        return FAILED.size();
    }
}
