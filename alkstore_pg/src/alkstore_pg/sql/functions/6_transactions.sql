-- Which incarnation of the server this is; asked first after a crash, it is given a new name.
CREATE OR REPLACE FUNCTION {schema}.current_incarnation() RETURNS uuid
LANGUAGE plpgsql
AS $$
DECLARE
    known uuid := (SELECT i.id FROM {schema}.incarnation i);
BEGIN
    IF known IS NULL THEN
        INSERT INTO {schema}.incarnation (id) VALUES (gen_random_uuid()) ON CONFLICT DO NOTHING;
        known := (SELECT i.id FROM {schema}.incarnation i);
    END IF;
    RETURN known;
END
$$;
