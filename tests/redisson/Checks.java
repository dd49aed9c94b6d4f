import java.nio.file.Path;

/** Real Redisson beside kvlock on one server: what the guide for those who come from it says is so. */
final class Checks {
    private Checks() {}

    /** The server's program, the module, a folder for data; then, if given, a part of the names of the checks to make. */
    public static void main(String[] args) throws Exception {
        Site.use(args[0], args[1], Path.of(args[2]));
        if (args.length > 3) {
            Table.only(args[3]);
        }
        try (Site site = new Site()) {
            System.out.println("kvlock of the sources " + site.field("kvlock_sources"));
            new Exclusion(site).run();
            new Waking(site).run();
            new Mixing(site).run();
            new Fairness(site).run();
            Table.check("panics that the module has caught", "none", () -> {
                String caught = site.field("kvlock_caught_panics");
                return Table.seen("0".equals(caught), caught);
            });
        }
        new Topologies().run();
        // Not by returning: threads of clients whose server is gone may still be at work.
        System.exit(Table.end() == 0 ? 0 : 1);
    }
}
